"""Files of tensors and JSON: safetensors with a digest.

They are written whole, and read without running code. Only `read` loads torch.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cavity.common import files
from cavity.errors import BadFile, BadInput

FORMAT = 4  # the only format that this version reads
_KEY = "cavity"
_DIGEST = "sha256"
# room for 10,000 columns with names of 300 letters; read and checked in two seconds
_HEADER_BYTES = 24 << 20
_MOST_TENSORS = 20_000
_MOST_VALUES = 400_000
# what is left beside the names of columns, levels and classes: history, plan, notes
_OTHER_BYTES = 4 << 20
_OTHER_VALUES = 120_000
_BYTES = {"BOOL": 1} | {
    f"{kind}{8 * size}": size for kind in "FIU" for size in (1, 2, 4, 8)
}


class Entry(NamedTuple):
    """What a file declares about a tensor before it is read."""

    dtype: str  # as safetensors writes it, such as "F64"
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape) * _BYTES[self.dtype]


class Stored(NamedTuple):
    """The contents of a file."""

    tensors: dict[str, Any]  # of torch, or arrays of NumPy
    meta: dict[str, Any]
    checked: Any  # what `check` returned


# what reading meaningless contents may raise
DAMAGE = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    RuntimeError,
    MemoryError,
)
Check = Callable[[dict[str, Entry], dict[str, Any]], Any]


def write(
    path: str | Path, kind: str, tensors: dict[str, Any], meta: dict[str, Any]
) -> None:
    """Write a file of this kind.

    Whatever happens, `path` holds either the complete old file or the complete new one.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save

    try:
        head = json.dumps({"kind": kind, "format": FORMAT, **meta})
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(
            f"{path}: notes_ or the history cannot be written as JSON ({error}): they "
            "hold numbers, text, lists and dicts."
        ) from error

    try:
        _check_length(*_measure(head))
        arrays = {name: _to_array(tensor) for name, tensor in tensors.items()}
        data = save(arrays, metadata={_KEY: head, _DIGEST: digest(arrays, head)})
    except (
        SafetensorError,
        RuntimeError,
        ValueError,
        TypeError,
        OverflowError,
    ) as error:
        raise BadFile(
            f"{path} could not be written: {error!s:.300} The old file is intact."
        ) from error

    files.write_bytes(path, data)


def _measure(head: str) -> tuple[int, int]:
    """Return the length of JSON inside the JSON of a header, and its values."""
    escaped = head.count('"') + head.count("\\")
    return len(head) + escaped, head.count(",")


def check_room(names: Any) -> None:
    """Raise BadInput if a file has no room for the names of columns and classes.

    `names` is JSON; a fit checks it before it trains.
    """
    length, values = _measure(json.dumps(names))
    room = _HEADER_BYTES - _OTHER_BYTES
    most = _MOST_VALUES - _OTHER_VALUES
    if length > room or values > most:
        raise BadInput(
            "the names of columns, their levels and the classes would take "
            f"{length / 2**20:.1f} MB with {values} values, but a model file has room "
            f"for {room >> 20} MB and {most} values: shorten names, or ignore columns "
            "of long texts (--ignore, in Python ignore=)."
        )


def _to_array(tensor: Any) -> np.ndarray:
    if hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu().numpy()
    return np.asarray(tensor, order="C")


def digest(arrays: dict[str, Any], head: str) -> str:
    """Return SHA-256 of the JSON and of name, type, shape and bytes of every array."""
    hasher = hashlib.sha256(head.encode())
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        hasher.update(f"\0{name}\0torch.{array.dtype.name}\0{array.shape}\0".encode())
        hasher.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    return hasher.hexdigest()


def read(path: str | Path, *kinds: str) -> Stored:
    """Read tensors and JSON from a file of one of these kinds.

    Raises BadFile for anything else. Tensors are in memory of torch: BLAS chooses its
    path by alignment, and empty arrays have other strides.
    """
    import torch

    stored = read_arrays(path, *kinds)
    tensors = {}
    for name in list(stored.tensors):
        # one by one, so that memory does not double
        shared = torch.from_numpy(stored.tensors.pop(name))
        tensors[name] = torch.empty(shared.shape, dtype=shared.dtype).copy_(shared)

    return stored._replace(tensors=tensors)


def read_arrays(path: str | Path, *kinds: str, check: Check | None = None) -> Stored:
    """Read a file as `read` does, but into NumPy arrays, without torch.

    `check` is called with the names, types and shapes of the tensors and with the JSON
    before any tensor is read, and raises BadFile for what the caller cannot use. The
    digest is checked before anything is returned.
    """
    with _open(path) as file:
        meta = _read_head(path, file, kinds)
        entries = {}
        for name in sorted(file.keys()):
            part = file.get_slice(name)
            entries[name] = Entry(part.get_dtype(), tuple(part.get_shape()))
        checked = None
        if check is not None:
            checked = check(entries, meta)
        arrays = {name: file.get_tensor(name) for name in entries}
        _check_digest(path, file.metadata(), arrays)
        return Stored(arrays, meta, checked)


def read_meta(path: str | Path, *kinds: str) -> dict[str, Any]:
    """Read only the JSON of a file of one of these kinds.

    The digest is not checked: `read` does that.
    """
    with _open(path) as file:
        return _read_head(path, file, kinds)


@contextmanager
def _open(path: str | Path) -> Iterator[Any]:
    """Open a file of safetensors whose header is not too long.

    Raises BadFile for whatever goes wrong within the block.
    """
    from safetensors import SafetensorError, safe_open

    try:
        if not Path(path).is_file():
            raise BadFile(f"{path} is not a file, and cannot be read.")

        with Path(path).open("rb") as raw:
            length = int.from_bytes(raw.read(8), "little")
            if length <= Path(path).stat().st_size:
                _check_length(length)
                _check_length(length, raw.read(length).count(b","))

        with safe_open(path, framework="np") as file:
            yield file
    except BadFile as error:
        if str(path) in str(error):
            raise

        raise BadFile(f"{path}: {error}") from error
    except (SafetensorError, *DAMAGE) as error:
        raise BadFile(
            f"{path} is truncated, or not a cavity file ({error!s:.200})."
        ) from error
    except OSError as error:
        raise BadFile(
            f"{path} cannot be read: {error.strerror or error!s:.200}."
        ) from error


def _check_length(length: int, values: int = 0) -> None:
    """Raise BadFile for a header that would take long to read."""
    if length > _HEADER_BYTES or values > _MOST_VALUES:
        raise BadFile(
            f"its JSON takes {length / 2**20:.1f} MB with {values} values, but a "
            f"cavity file has at most {_HEADER_BYTES >> 20} MB and {_MOST_VALUES} "
            "values: shorten the names of columns and levels, the history or notes_."
        )


def _read_head(path: str | Path, file: Any, kinds: tuple[str, ...]) -> dict[str, Any]:
    """Return the JSON if the file is of one of these kinds and of a known format."""
    if len(file.keys()) > _MOST_TENSORS:
        raise BadFile(
            f"it has {len(file.keys())} tensors, but a cavity file has at most "
            f"{_MOST_TENSORS}."
        )

    meta = json.loads((file.metadata() or {}).get(_KEY) or "null")
    found = meta.get("kind") if isinstance(meta, dict) else None
    if found not in kinds:
        other = f" but a {found!s:.40}" if found else ""
        raise BadFile(f"{path} is not a cavity {kinds[0]}{other}.")

    number = meta.get("format")
    if number in range(1, FORMAT) and not isinstance(number, bool):
        wrote = f"cavity {meta.get('version', 'before 0.3')!s:.20}"
        raise BadFile(
            f"{path} has format {number}, written by {wrote}: this version reads "
            f"format {FORMAT}. Load it with cavity 0.3 "
            "(pip install 'cavity<0.4') and save it again, or fit again."
        )
    if isinstance(number, bool) or number != FORMAT:
        raise BadFile(
            f"{path} has format {number!s:.40}, this version reads {FORMAT}: update "
            "cavity."
        )

    return meta


def _check_digest(
    path: str | Path, words: dict[str, str], arrays: dict[str, Any]
) -> None:
    """Refuse a file whose contents changed after it was written."""
    if words.get(_DIGEST) != digest(arrays, words[_KEY]):
        raise BadFile(
            f"{path} is damaged: its contents do not match its SHA-256 digest. Restore "
            "the file from a copy, or fit again."
        )
