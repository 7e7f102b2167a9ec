"""Locate tables on disk, or in a store with a URI such as s3://bucket/rows.

File systems come from pyarrow, else from fsspec.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from cavity.common.files import is_uri
from cavity.errors import BadInput
from cavity.tables.arrow_tables import import_pyarrow


class Place(NamedTuple):
    """A path on a file system of pyarrow."""

    filesystem: Any
    path: str


def locate(where: str | os.PathLike[str]) -> Place:
    """Find the file system of a path or URI.

    Its library handles credentials, end points and retries.
    """
    fs = import_pyarrow(".fs")
    uri = os.fspath(where)
    if not is_uri(uri):
        return Place(fs.LocalFileSystem(), Path(uri).as_posix())

    try:
        filesystem, path = fs.FileSystem.from_uri(uri)
    except import_pyarrow().ArrowInvalid:  # a scheme that pyarrow does not know
        filesystem, path = _find_with_fsspec(uri)
    except (ImportError, OSError) as error:
        raise BadInput(f"{uri!r} cannot be reached: {error}") from error

    return Place(filesystem, path.rstrip("/"))


def _find_with_fsspec(uri: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
        from pyarrow.fs import FSSpecHandler, PyFileSystem

        found, path = url_to_fs(uri)
    except (ImportError, ValueError) as error:
        raise BadInput(
            f"{uri!r}: neither pyarrow nor fsspec can open it ({error})."
        ) from error

    return PyFileSystem(FSSpecHandler(found)), path


def list_files(where: str | os.PathLike[str]) -> tuple[Place, list[str]]:
    """Return a folder and the visible files below it, sorted.

    For a file, return its folder and the file itself.
    """
    fs = import_pyarrow(".fs")
    place = locate(where)
    uri = os.fspath(where)
    try:
        kind = place.filesystem.get_file_info(place.path).type
        if kind == fs.FileType.File:
            folder = os.path.dirname(place.path) or "."
            return Place(place.filesystem, folder), [place.path]

        found = []
        if is_uri(uri) or kind != fs.FileType.NotFound:  # raises if a bucket is missing
            below = fs.FileSelector(place.path, recursive=True)
            found = place.filesystem.get_file_info(below)
    except OSError as error:
        raise BadInput(f"{uri!r} cannot be read: {error}") from error

    names = (info.path for info in found if info.type == fs.FileType.File)
    shown = sorted(name for name in names if not _is_hidden(name[len(place.path) :]))
    is_empty_uri = is_uri(uri) and not shown  # stores do not have empty folders
    if kind == fs.FileType.NotFound or is_empty_uri:
        raise BadInput(f"file or folder {uri!r} does not exist.")

    return place, shown


def _is_hidden(below: str) -> bool:
    parts = [part for part in below.split("/") if part != "_delta_log"]
    return any(part.startswith(("_", ".")) for part in parts)
