"""Files of tensors and JSON: safetensors with a digest, written to a temporary file and renamed, read without running code.

torch is loaded with the first tensor: `read_facts` needs none.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from cavity.common import object_stores
from cavity.common.object_stores import is_uri
from cavity.errors import BadFile, BadInput

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

FORMAT = 4  # of all files that this version reads
_KEY, _DIGEST = "cavity", "sha256"
_HASH_BYTES = 1 << 20  # hashed at a time, so that a check needs little memory
_HEADER_BYTES = 4 << 20  # descriptions of 10,000 columns; read and checked within a second
_MOST_TENSORS, _MOST_VALUES = 20_000, 400_000
_DTYPES = {  # names in torch, and bytes
    "F64": ("float64", 8),
    "F32": ("float32", 4),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "I64": ("int64", 8),
    "I32": ("int32", 4),
    "I16": ("int16", 2),
    "I8": ("int8", 1),
    "U8": ("uint8", 1),
    "U16": ("uint16", 2),
    "U32": ("uint32", 4),
    "U64": ("uint64", 8),
    "BOOL": ("bool", 1),
}


class Entry(NamedTuple):
    """What a file declares about a tensor, known before the tensor is read."""

    dtype: str  # as safetensors writes it, such as "F64"
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape) * _DTYPES[self.dtype][1]


class _Place(NamedTuple):
    entry: Entry
    start: int
    stop: int


class _Head(NamedTuple):
    meta: dict[str, Any]
    text: str  # the same as JSON
    digest: str | None
    places: dict[str, _Place]


class Stored(NamedTuple):
    """The contents of a file."""

    tensors: dict[str, Any]  # of torch, or arrays of NumPy
    meta: dict[str, Any]
    checked: Any  # what `check` returned

    def as_tensors(self) -> Stored:
        """Return the contents in memory of torch: BLAS chooses its path by alignment, and empty arrays have other strides.

        Arrays are dropped one by one, so that memory does not double.
        """
        import torch

        tensors = {}
        for name in list(self.tensors):
            shared = torch.from_numpy(self.tensors.pop(name))
            tensors[name] = torch.empty(shared.shape, dtype=shared.dtype).copy_(shared)
        return Stored(tensors, self.meta, self.checked)


# what reading meaningless contents may raise
DAMAGE = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError, MemoryError)
Check = Callable[[dict[str, Entry], dict[str, Any]], Any]


def write(path: str | Path, kind: str, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Write a file of this kind. Whatever happens, `path` holds either the complete old file or the complete new one."""
    from safetensors import SafetensorError
    from safetensors.torch import save

    try:
        head = json.dumps({"kind": kind, "format": FORMAT, **meta})
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(
            f"{path} could not be written: its metadata cannot be written as JSON ({error}). "
            "notes_ and the history hold numbers, text, lists and dicts."
        ) from error
    held = {name: t.detach().contiguous().cpu() for name, t in tensors.items()}
    try:
        _check_length(len(head) + head.count('"') + head.count("\\"), head.count(","))  # as text inside JSON
        data = save(held, metadata={_KEY: head, _DIGEST: digest(held, head)})
    except (BadFile, SafetensorError, RuntimeError, ValueError, OverflowError) as error:
        raise BadFile(f"{path} could not be written: {error!s:.300} The old file is intact.") from error
    object_stores.write_bytes(path, data)


def digest(tensors: dict[str, Tensor], head: str) -> str:
    """Return SHA-256 of the JSON and of every tensor: its name, type, shape and bytes."""
    import torch

    names = {f"torch.{name}": dtype for dtype, (name, _) in _DTYPES.items()}
    entries = {name: Entry(names[str(t.dtype)], tuple(t.shape)) for name, t in tensors.items()}
    held = {name: t.detach().contiguous().cpu().reshape(-1) for name, t in tensors.items()}
    return _hash(head, entries, lambda name: [held[name].view(torch.uint8).numpy().data])


def _hash(head: str, entries: dict[str, Entry], read: Callable[[str], Iterable[Any]]) -> str:
    """Return the digest of the JSON and of tensors whose bytes `read` gives in pieces."""
    hasher = hashlib.sha256(head.encode())
    for name in sorted(entries):
        dtype, shape = entries[name]
        hasher.update(f"\0{name}\0torch.{_DTYPES[dtype][0]}\0{shape}\0".encode())
        for raw in read(name):
            hasher.update(raw)
    return hasher.hexdigest()


def read(path: str | Path, *kinds: str, check: Check | None = None) -> Stored:
    """Read tensors and JSON from a file of one of these kinds. Raises BadFile for anything else.

    `check` is called with the names, types and shapes of the tensors and with the JSON before any tensor is read, and raises
    BadFile for what the caller cannot use. The digest is checked before anything is returned.
    """
    return read_arrays(path, *kinds, check=check).as_tensors()


def read_arrays(path: str | Path, *kinds: str, check: Check | None = None) -> Stored:
    """Read a file as `read` does, but into NumPy arrays: this does not load torch."""
    with _open(path) as file:
        head = _read_head(path, file, kinds)
        entries = {name: place.entry for name, place in head.places.items()}
        with _explain_damage(path):
            checked = None if check is None else check(entries, head.meta)
            arrays = {name: _read_array(file, place) for name, place in head.places.items()}
        found = _hash(head.text, entries, lambda name: [arrays[name].reshape(-1).view("uint8").data])
        _check_digest(path, found, head)
        return Stored(arrays, head.meta, checked)


def read_meta(path: str | Path, *kinds: str) -> dict[str, Any]:
    """Read only the JSON of a file of one of these kinds. The digest is not checked: `read` does that."""
    with _open(path) as file:
        return _read_head(path, file, kinds).meta


def read_facts(path: str | Path, *kinds: str) -> dict[str, Any]:
    """Read only the JSON of a file of one of these kinds, and check the digest. Makes no tensor."""
    with _open(path) as file:
        head = _read_head(path, file, kinds)
        entries = {name: place.entry for name, place in head.places.items()}
        with _explain_damage(path):
            found = _hash(head.text, entries, lambda name: _read_pieces(file, head.places[name]))
        _check_digest(path, found, head)
        return head.meta


def _read_pieces(file: BinaryIO, place: _Place) -> Iterator[bytes]:
    file.seek(place.start)
    for start in range(place.start, place.stop, _HASH_BYTES):
        size = min(_HASH_BYTES, place.stop - start)
        part = file.read(size)
        if len(part) < size:
            raise EOFError("the file shrank while it was read")
        yield part


@contextmanager
def _open(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file once, since its name may stand for a newer file at any moment."""
    try:
        if is_uri(path):
            with tempfile.TemporaryFile() as copy:
                object_stores.download(str(path), copy)
                copy.seek(0)
                yield copy
        elif not Path(path).is_file():
            raise BadFile(f"{path} is not a file, and cannot be read.")
        else:
            with Path(path).open("rb") as file:
                yield file
    except BadFile as error:
        raise error if str(path) in str(error) else BadFile(f"{path}: {error}") from error
    except (OSError, ValueError) as error:  # a name may contain a null byte
        reason = getattr(error, "strerror", None) or error
        raise BadFile(f"{path} cannot be read: {reason!s:.200}.") from error


@contextmanager
def _explain_damage(path: str | Path) -> Iterator[None]:
    """Raise BadFile for whatever meaningless contents cause."""
    try:
        yield
    except BadFile:
        raise
    except (*DAMAGE, EOFError) as error:
        raise BadFile(f"{path} is truncated, or not a cavity file ({error!s:.200}).") from error


def _read_head(path: str | Path, file: BinaryIO, kinds: tuple[str, ...]) -> _Head:
    """Read and check everything but the tensors."""
    with _explain_damage(path):
        words, places = _read_header(file, os.fstat(file.fileno()).st_size)
        text = words.get(_KEY) or "null"
        return _Head(_check_head(path, json.loads(text), kinds), text, words.get(_DIGEST), places)


def _read_header(file: BinaryIO, size: int) -> tuple[dict[str, str], dict[str, _Place]]:
    """Return the texts of the container and the places of its tensors, which must fill the file without gaps."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise EOFError("the header is longer than the file")
    _check_length(length)
    raw = file.read(length)
    _check_length(length, raw.count(b","))
    header = json.loads(raw.decode())
    words = header.pop("__metadata__", {})
    if len(header) > _MOST_TENSORS:
        raise BadFile(f"it has {len(header)} tensors, and a cavity file has at most {_MOST_TENSORS}.")
    places = {name: _place(about, 8 + length) for name, about in header.items()}
    end = 8 + length
    for place in sorted(places.values(), key=lambda p: (p.start, p.stop)):
        if place.start != end:
            raise EOFError("tensors overlap, or leave gaps")
        end = place.stop
    if end != size:
        raise EOFError(f"{end} bytes are declared, and {size} are there")
    return words, places


def _check_length(length: int, values: int = 0) -> None:
    """Raise BadFile for a header that would take long to read."""
    if length > _HEADER_BYTES or values > _MOST_VALUES:
        raise BadFile(
            f"its JSON takes {length / 2**20:.1f} MB with {values} values, and a cavity file has at most {_HEADER_BYTES >> 20} MB "
            f"and {_MOST_VALUES} of them: names of columns and levels, the history, notes_."
        )


def _place(about: Any, base: int) -> _Place:
    entry, (start, stop) = Entry(about["dtype"], tuple(about["shape"])), about["data_offsets"]
    bits = all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in (*entry.shape, start, stop))
    if not bits or entry.dtype not in _DTYPES:
        raise EOFError("a tensor of an unknown type or shape")
    if entry.size != stop - start:
        raise EOFError("a tensor of another size than its shape says")
    return _Place(entry, base + start, base + stop)


def _read_array(file: BinaryIO, place: _Place) -> NDArray[Any]:
    import numpy as np

    array = np.empty(place.entry.shape, np.dtype(_DTYPES[place.entry.dtype][0]))
    file.seek(place.start)
    if file.readinto(array.reshape(-1).view(np.uint8).data) != array.nbytes:  # type: ignore[attr-defined]
        raise EOFError("the file shrank while it was read")
    return array


def _check_head(path: str | Path, meta: Any, kinds: tuple[str, ...]) -> dict[str, Any]:
    """Return the JSON if the file is of one of these kinds and of a known format."""
    if not isinstance(meta, dict) or meta.get("kind") not in kinds:
        found = meta.get("kind") if isinstance(meta, dict) else None
        raise BadFile(f"{path} is not a cavity {kinds[0]}" + (f" but a {found!s:.40}." if found else "."))
    number = meta.get("format")
    if number in range(1, FORMAT) and not isinstance(number, bool):
        wrote = f"cavity {meta.get('version', 'before 0.3')!s:.20}"
        raise BadFile(
            f"{path} has format {number}, written by {wrote}: this version reads format {FORMAT}. Load it with cavity 0.3 "
            "(pip install 'cavity<0.4') and save it again, or fit again."
        )
    if isinstance(number, bool) or number != FORMAT:
        raise BadFile(f"{path} has format {number!s:.40}, this version reads {FORMAT}: update cavity.")
    return meta


def _check_digest(path: str | Path, found: str, head: _Head) -> None:
    """Refuse a file whose contents changed after it was written."""
    if head.digest != found:
        said = f"{path} is damaged: its contents do not match its SHA-256 digest."
        raise BadFile(f"{said} Restore the file from a copy, or fit again.")
