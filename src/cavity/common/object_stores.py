"""Files on disks and in object stores: URIs such as s3://bucket/rows, through the file systems of pyarrow, else of fsspec."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from cavity.errors import BadFile, BadInput, CavityError, missing_extra

URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
HADOOP_S3 = re.compile(r"s3[an]://")  # as Spark writes s3://
BUCKETS = ("s3", "gcs", "abfs")  # file systems whose paths begin with a bucket or container
COPY_BYTES = 4 << 20
STALE_SECONDS = 3600.0  # an unfinished file that nobody wrote to for so long belongs to a dead process


Location: TypeAlias = str | Path  # a URI, or a path of this machine: see as_path


class Place(NamedTuple):
    """A path on a file system of pyarrow."""

    filesystem: Any
    path: str


def is_uri(path: Any) -> bool:
    """Return whether a path names a file system, as in s3://bucket/rows."""
    return isinstance(path, str) and URI.match(path) is not None


def as_path(path: str | Path) -> Location:
    """Return a path of this machine as a Path, and a URI unchanged."""
    return path if is_uri(path) else Path(path)


def locate(uri: str) -> Place:
    """Find the file system of a URI. Credentials, end points and retries are those of its library."""
    uri = HADOOP_S3.sub("s3://", uri)
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


def list_files(where: str | os.PathLike[str]) -> tuple[Place, list[str]]:
    """Return a folder and the files below it without hidden ones, sorted; for a file, its folder and itself."""
    from pyarrow.fs import FileSelector, FileType, LocalFileSystem

    uri = os.fspath(where)
    filesystem, path = locate(uri) if is_uri(uri) else Place(LocalFileSystem(), Path(uri).as_posix())
    base = path.rstrip("/") or "/"
    try:
        kind = filesystem.get_file_info(base).type
        if kind == FileType.File:
            return Place(filesystem, base.rpartition("/")[0] or "."), [base]
        found = []
        if is_uri(uri) or kind != FileType.NotFound:  # raises if a bucket is missing
            found = filesystem.get_file_info(FileSelector(base, recursive=True))
    except OSError as error:
        raise BadInput(f"{uri!r} cannot be read: {error}") from error
    names = (info.path for info in found if info.type == FileType.File)
    shown = sorted(name for name in names if not _is_hidden(name[len(base) :]))
    if kind == FileType.NotFound or (is_uri(uri) and not shown):  # stores do not know empty folders
        raise BadInput(f"file or folder {uri!r} does not exist.")
    return Place(filesystem, base), shown


def _is_hidden(below: str) -> bool:
    return any(part.startswith(("_", ".")) and part != "_delta_log" for part in below.split("/"))


def read_bytes(file: Location) -> bytes:
    if isinstance(file, Path):
        return file.read_bytes()
    filesystem, path = locate(file)
    with filesystem.open_input_stream(path, compression=None) as stream:
        return bytes(stream.read())


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file, as `replacing` does."""
    with replacing(path) as part:
        part.write_bytes(data)


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a path to write to: the file replaces `path` at the end of the block, unless this raises an error. Raises BadFile.

    Whatever happens, `path` holds either the complete old file or the complete new one: a store replaces an object only by a
    complete one, and on a disk a file of a unique name is flushed and renamed. The file keeps its mode, and a symbolic link is
    followed. Several threads or processes may write to one path: the last one to finish wins.
    """
    try:
        if isinstance(path, str) and is_uri(path):
            with tempfile.TemporaryDirectory() as folder:
                yield Path(folder) / "part"
                _upload(Path(folder) / "part", path)
        elif "\0" in str(path):
            raise OSError(None, "a name cannot have a null character")
        else:
            yield from _replace_file(Path(os.path.realpath(path)))
    except CavityError:
        raise
    except OSError as error:
        folder_of = Path(path).parent
        if isinstance(error, FileNotFoundError) and not folder_of.is_dir():
            raise BadFile(
                f"{path}: the folder {str(folder_of)!r} does not exist; make it, or choose another path."
            ) from error
        raise BadFile(
            f"{path} could not be written ({error.strerror or error}); the old file is intact. Choose another path, or free disk "
            "space."
        ) from error


def _replace_file(target: Path) -> Iterator[Path]:
    mode = _mode_of(target)
    _sweep(target)
    part = target.with_name(f".{target.name[:200]}.{secrets.token_hex(8)}.part")
    try:
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600))
        yield part
        if mode is not None:
            part.chmod(mode)
        _flush(part)
        part.replace(target)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    with suppress(OSError):  # some systems cannot flush a folder, and the new file is in place anyway
        _flush(target.parent)


def _mode_of(target: Path) -> int | None:
    """Return the permissions of the file that is replaced; None for a new file."""
    try:
        found = target.stat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found):
        raise OSError(None, "it exists and is not a regular file")
    return stat.S_IMODE(found)


def _sweep(target: Path) -> None:
    """Remove unfinished files of this target that processes left behind when they were killed."""
    ours = re.compile(rf"\.{re.escape(target.name[:200])}\.[0-9a-f]{{16}}\.part")
    with suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            with suppress(OSError):
                if ours.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    age = time.time() - entry.stat(follow_symlinks=False).st_mtime
                    if age > STALE_SECONDS:
                        Path(entry.path).unlink()


def _flush(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def add_ending(path: Location, ending: str) -> Location:
    """Return the path of a file next to this one, whose name has an ending more."""
    if isinstance(path, Path):
        return path.with_name(path.name + ending)
    name, mark, options = path.partition("?")
    return name + ending + mark + options


def exists(path: Location) -> bool:
    """Return whether there is a file or folder of this name. Raises OSError if a store does not answer."""
    if isinstance(path, Path):
        return path.exists()
    return bool(_describe(path).type.name != "NotFound")


def is_folder(path: Location) -> bool:
    return path.is_dir() if isinstance(path, Path) else bool(_describe(path).type.name == "Directory")


def _describe(uri: str) -> Any:
    """Return what pyarrow knows about a file or folder. Raises OSError if a store does not answer."""
    filesystem, name = locate(uri)
    return filesystem.get_file_info(name.rstrip("/"))


def move(path: Location, to: Location) -> None:
    """Rename a file; a file that has the new name is replaced."""
    if isinstance(path, Path):
        path.replace(to)
        return
    filesystem, name = locate(path)
    filesystem.move(name, locate(str(to)).path)


def remove(path: Location) -> None:
    if isinstance(path, Path):
        path.unlink(missing_ok=True)
    elif exists(path):
        filesystem, name = locate(path)
        filesystem.delete_file(name)


def count_bytes(path: Location) -> int:
    return path.stat().st_size if isinstance(path, Path) else int(_describe(path).size)


def get_name(path: Location) -> str:
    return path.name if isinstance(path, Path) else path.partition("?")[0].rstrip("/").rpartition("/")[2]


def open_stream(path: Location) -> Any:
    """Open a file as a stream of pyarrow, unpacked if its name ends in .gz, .bz2 or .zst."""
    import pyarrow

    if isinstance(path, Path):
        return pyarrow.input_stream(str(path))
    filesystem, name = locate(path)
    return filesystem.open_input_stream(name)


def check_bucket(uri: str) -> None:
    """Raise BadInput if the bucket of a URI does not exist, or does not answer."""
    from pyarrow.fs import FileType

    filesystem, path = locate(uri)
    bucket = path.split("/")[0]
    if filesystem.type_name not in BUCKETS or not bucket:
        return
    try:
        found = filesystem.get_file_info(bucket).type
    except OSError as error:
        raise BadInput(f"{uri!r} cannot be reached: {error}") from error
    if found == FileType.NotFound:
        raise BadInput(f"{uri!r}: the bucket {bucket!r} does not exist.")


def download(uri: str, file: Any) -> None:
    """Copy a file of a store to an open file. Raises OSError, as a local file does."""
    filesystem, path = locate(uri)
    with filesystem.open_input_stream(path, compression=None) as stream:
        shutil.copyfileobj(stream, file, COPY_BYTES)


def _upload(file: Path, uri: str) -> None:
    """Copy a file to a store, which shows it when it is complete."""
    filesystem, path = locate(uri)
    with file.open("rb") as content, filesystem.open_output_stream(path, compression=None) as stream:
        shutil.copyfileobj(content, stream, COPY_BYTES)
