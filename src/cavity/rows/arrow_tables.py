"""Arrow tables: the rows of a chunk, and pyarrow, imported when it is needed."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from cavity.errors import missing_extra

PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # the name that pandas gives the index of a frame in a file


class Chunk(NamedTuple):
    """Rows of some columns as an Arrow table."""

    table: Any  # pyarrow.Table
    first: int  # number of the first row, in file order
    where: str  # the file


def import_pyarrow() -> Any:
    """Import pyarrow, or raise an error that says how to install it."""
    try:
        import pyarrow
    except ImportError as error:
        raise missing_extra("pyarrow", "arrow") from error
    return pyarrow


def release_memory() -> None:
    """Return unused memory of Arrow's pool to the system, so that other libraries can use it."""
    import_pyarrow().default_memory_pool().release_unused()
