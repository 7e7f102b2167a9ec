"""Rows from standard input, kept in a temporary file.

Tables are read several times.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STDIN = ("-", "/dev/stdin")
MAGIC = {  # the first bytes of a file, and its suffix; other files are CSV
    b"PAR1": ".parquet",
    b"ARROW1": ".arrow",
    b"\xff\xff\xff\xff": ".arrow",  # an Arrow stream
    b"\x1f\x8b": ".csv.gz",
    b"BZh": ".csv.bz2",
    b"\x28\xb5\x2f\xfd": ".csv.zst",
}
MAGIC_BYTES = max(map(len, MAGIC))


@contextmanager
def spooled(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the arguments of a command; `data` from standard input is a file."""
    if str(given.get("data")) not in STDIN:
        yield given
        return

    with tempfile.TemporaryDirectory(prefix="cavity-") as folder:
        start = sys.stdin.buffer.read(MAGIC_BYTES)
        kinds = (MAGIC[magic] for magic in MAGIC if start.startswith(magic))
        path = Path(folder, "stdin" + next(kinds, ".csv"))
        with path.open("wb") as file:
            file.write(start)
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield {**given, "data": str(path)}
