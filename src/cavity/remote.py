"""Files in object stores: URIs such as s3://bucket/rows, through the file systems of pyarrow, else of fsspec."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from cavity.errors import BadInput, missing_extra

URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


class Place(NamedTuple):
    """A path on a file system of pyarrow."""

    filesystem: Any
    path: str


def is_uri(path: Any) -> bool:
    """Return whether a path names a file system, as in s3://bucket/rows."""
    return isinstance(path, str) and URI.match(path) is not None


def as_path(path: str | Path) -> str | Path:
    """Return a path of this machine as a Path, and a URI unchanged."""
    return path if is_uri(path) else Path(path)


def locate(uri: str) -> Place:
    """Find the file system of a URI. Credentials, end points and retries are those of its library."""
    try:
        import pyarrow
        from pyarrow import fs
    except ImportError as error:
        raise missing_extra("pyarrow", "arrow") from error
    try:
        return Place(*fs.FileSystem.from_uri(uri))
    except pyarrow.ArrowInvalid:
        return _locate_with_fsspec(uri)
    except (ImportError, OSError) as error:
        raise BadInput(f"{uri!r} cannot be reached: {error}") from error


def _locate_with_fsspec(uri: str) -> Place:
    """Find the file system of a scheme that pyarrow does not know."""
    try:
        from fsspec.core import url_to_fs
        from pyarrow.fs import FSSpecHandler, PyFileSystem

        found, path = url_to_fs(uri)
    except (ImportError, ValueError) as error:
        raise BadInput(f"{uri!r}: neither pyarrow nor fsspec can open it ({error}).") from error
    return Place(PyFileSystem(FSSpecHandler(found)), path)


def list_files(uri: str) -> tuple[Place, list[str]]:
    """Return a folder and the files below it without hidden ones, sorted; for the URI of a file, its folder and itself."""
    from pyarrow.fs import FileSelector, FileType

    filesystem, path = locate(uri)
    base = path.rstrip("/")
    try:
        kind = filesystem.get_file_info(base).type
        if kind == FileType.File:
            return Place(filesystem, base.rpartition("/")[0]), [base]
        found = filesystem.get_file_info(
            FileSelector(base, recursive=True)
        )  # raises if the bucket is missing
    except OSError as error:
        raise BadInput(f"{uri!r} cannot be read: {error}") from error
    names = [info.path for info in found if info.type == FileType.File]
    return Place(filesystem, base), sorted(name for name in names if not _is_hidden(name[len(base) :]))


def _is_hidden(below: str) -> bool:
    return any(part.startswith(("_", ".")) for part in below.split("/"))


def read_bytes(uri: str) -> bytes:
    """Read a file. Raises OSError, as a local file does."""
    filesystem, path = locate(uri)
    with filesystem.open_input_stream(path) as stream:
        data: bytes = stream.read()
    return data


def write_bytes(uri: str, data: bytes) -> None:
    """Write a file. Object stores show it only when it is complete. Raises OSError, as a local file does."""
    filesystem, path = locate(uri)
    with filesystem.open_output_stream(path) as stream:
        stream.write(data)
