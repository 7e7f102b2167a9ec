"""Files of tensors and JSON: safetensors, written to a temporary file and renamed, read without running code."""

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
    """The contents of a file."""

    tensors: dict[str, Tensor]
    meta: dict[str, Any]


def write(path: str | Path, kind: str, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Write a file of this kind. Whatever happens, `path` holds either the complete old file or the complete new one."""
    from safetensors.torch import save

    head = json.dumps({"kind": kind, "format": FORMAT, **meta})
    write_bytes(
        path, save({name: t.contiguous().cpu() for name, t in tensors.items()}, metadata={_KEY: head})
    )


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write to a temporary file, flush it to disk, rename it."""
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise BadFile(
            f"{path} could not be written ({error.strerror or error}); the old file is intact. Choose another path, or "
            "free disk space."
        ) from error
    finally:
        part.unlink(missing_ok=True)


def read(path: str | Path, kind: str, *others: str) -> Stored:
    """Read tensors and JSON from a file of this kind, or of `others`. Raises BadFile for anything else."""
    path = Path(path)
    _check_readable(path)
    tensors, meta = _contents(path)
    if not isinstance(meta, dict) or meta.get("kind") not in (kind, *others):
        found = meta.get("kind") if isinstance(meta, dict) else None
        raise BadFile(f"{path} is not a cavity {kind}" + (f" but a {found}." if found else "."))
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
    except (OSError, ValueError) as error:  # a name may contain a null byte
        reason = getattr(error, "strerror", None) or error
        raise BadFile(f"{path} cannot be read: {reason}.") from error


def _contents(path: Path) -> tuple[dict[str, Tensor], Any]:
    """Read the container. Its reader checks every offset against the file size before it allocates memory."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            head = (file.metadata() or {}).get(_KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}
        return tensors, json.loads(head) if head else None
    except (SafetensorError, ValueError, RecursionError, OSError, RuntimeError, TypeError) as error:
        raise BadFile(f"{path} is truncated, or not a cavity file ({error}).") from error
