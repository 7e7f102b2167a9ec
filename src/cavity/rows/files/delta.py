"""Tables of Delta Lake: a folder of Parquet files with a log, which says which of them belong to the newest version."""

from __future__ import annotations

import os
from typing import Any

from cavity.errors import BadInput, missing_extra

LOG = "_delta_log"  # folder of the log


def open_delta(path: str | os.PathLike[str]) -> Any:
    """Open the newest version of a Delta table as a dataset of pyarrow. Credentials are those of deltalake."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError as error:
        raise missing_extra("deltalake", "delta") from error
    where = os.fspath(path).partition("?")[0]
    try:
        return DeltaTable(where).to_pyarrow_dataset()
    except (DeltaError, OSError, ValueError) as error:
        raise BadInput(
            f"the Delta table {where!r} cannot be read: {' '.join(str(error).split()):.300}"
        ) from error
