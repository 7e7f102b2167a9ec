"""Arrow tables: the rows of a chunk, and pyarrow, imported when it is needed."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any, NamedTuple

from cavity.errors import missing_extra

PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # the name that pandas gives the index of a frame in a file


class Chunk(NamedTuple):
    """Rows of some columns as an Arrow table."""

    table: Any  # pyarrow.Table
    first: int  # number of the first row, in file order
    where: str  # the file


def import_pyarrow(part: str = "") -> Any:
    """Import pyarrow, or a part of it such as ".dataset"; the error says how to install it."""
    try:
        return import_module("pyarrow" + part)
    except ImportError as error:
        raise missing_extra("pyarrow", "arrow") from error


def release_memory() -> None:
    """Return unused memory of Arrow's pool to the system, so that other libraries can use it."""
    import_pyarrow().default_memory_pool().release_unused()
