"""Files that hold tensors and JSON: safetensors, written aside and renamed, read without running anything."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from cavity.errors import BadFile

FORMAT = 2  # raised when an older reader could not make sense of a file
_KEY = "cavity"


class Stored(NamedTuple):
    """What a file holds."""

    tensors: dict[str, Tensor]
    meta: dict[str, Any]


def write(path: str | Path, kind: str, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """One file of this kind; whatever happens, `path` is the old file or the new one, whole."""
    from safetensors.torch import save

    head = json.dumps({"kind": kind, "format": FORMAT, **meta})
    write_bytes(
        path, save({name: t.contiguous().cpu() for name, t in tensors.items()}, metadata={_KEY: head})
    )


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write aside, flush to the disk, rename."""
    path = Path(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        raise BadFile(
            f"{path} could not be written ({error.strerror or error}); what was there is intact. Choose another path, or make room."
        ) from error
    finally:
        aside.unlink(missing_ok=True)


def read(path: str | Path, kind: str, *others: str) -> Stored:
    """Tensors and JSON of a file of this kind, or of others; anything else is refused in words."""
    path = Path(path)
    _check_readable(path)
    tensors, meta = _contents(path)
    if not isinstance(meta, dict) or meta.get("kind") not in (kind, *others):
        found = meta.get("kind") if isinstance(meta, dict) else None
        raise BadFile(f"{path} is no cavity {kind}" + (f" but a {found}." if found else "."))
    number = meta.get("format")
    if not isinstance(number, int) or not 1 <= number <= FORMAT:
        raise BadFile(
            f"{path} has format {number}, and this version of cavity reads up to {FORMAT}: update cavity."
        )
    return Stored(tensors, meta)


def _check_readable(path: Path) -> None:
    try:
        if not path.is_file():
            raise BadFile(f"{path} is not a file.")
        path.open("rb").close()
    except (OSError, ValueError) as error:  # a name may hold what no name can
        reason = getattr(error, "strerror", None) or error
        raise BadFile(f"{path} cannot be read: {reason}.") from error


def _contents(path: Path) -> tuple[dict[str, Tensor], Any]:
    """What the container holds; its reader checks every offset against the size of the file and allocates nothing before."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            head = (file.metadata() or {}).get(_KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}
        return tensors, json.loads(head) if head else None
    except (SafetensorError, ValueError, RecursionError, OSError, RuntimeError, TypeError) as error:
        raise BadFile(f"{path} is truncated, or no file of cavity ({error}).") from error
