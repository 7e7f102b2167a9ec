"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cavity.errors import BadFile, CavityError

URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# an unfinished file that was not written to for this long belongs to a dead process
STALE_SECONDS = 3600.0


def is_uri(path: Any) -> bool:
    """Whether a path names a file system, as in s3://bucket/rows."""
    return isinstance(path, str) and URI.match(path) is not None


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file, as `replacing` does."""
    with replacing(path) as part:
        part.write_bytes(data)


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a path to write to; the file replaces `path` at the end of the block.

    It does not if the block raises an error. Raises BadFile if writing fails.

    Whatever happens, `path` holds either the complete old file or the complete new one:
    a file of a unique name is flushed and renamed. The file keeps its mode, and a
    symbolic link is followed. Several threads or processes may write to one path: the
    last one to finish wins.
    """
    try:
        if "\0" in str(path):
            raise OSError(None, "a name cannot have a null character")
        if is_uri(path):
            remedy = "only rows may be in a store: write a file, and copy it there"
            raise OSError(None, remedy)

        yield from _replace_file(Path(os.path.realpath(path)))
    except CavityError:
        raise
    except OSError as error:
        folder = Path(path).parent
        if isinstance(error, FileNotFoundError) and not folder.is_dir():
            raise BadFile(
                f"{path}: the folder {str(folder)!r} does not exist: make it first."
            ) from error

        raise BadFile(
            f"{path} could not be written ({error.strerror or error}); the old file is "
            "intact: free disk space or use another path."
        ) from error


def _replace_file(target: Path) -> Iterator[Path]:
    mode = _mode_of(target)
    _sweep(target)
    part = target.with_name(f".{target.name[:200]}.{secrets.token_hex(8)}.part")
    permissions = 0o666 if mode is None else 0o600
    try:
        part.touch(permissions, exist_ok=False)
        yield part
        if mode is not None:
            part.chmod(mode)
        _flush(part)
        part.replace(target)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)

    # some systems cannot flush a folder, and the new file is in place anyway
    with suppress(OSError):
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
    """Remove unfinished files of this target that killed processes left behind."""
    ours = re.compile(rf"\.{re.escape(target.name[:200])}\.[0-9a-f]{{16}}\.part")
    newest = time.time() - STALE_SECONDS
    with suppress(OSError):
        for other in target.parent.iterdir():
            if ours.fullmatch(other.name) and other.lstat().st_mtime < newest:
                other.unlink()


def _flush(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
