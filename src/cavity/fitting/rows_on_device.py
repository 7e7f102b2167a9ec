"""Rows of a table as the engine reads them: tensors on the device, or batches that are
read from memory or from disk.
"""

from __future__ import annotations

import numpy as np
import torch

from cavity.engine.batches.in_memory import RowsInMemory
from cavity.engine.batches.stream import Data, Stream
from cavity.tables.array_sources import Arrays
from cavity.tables.table import Facts, Streamed, Table

ROOM = 0.5  # share of a GPU's free memory that a table may take


def load_rows(table: Facts, dtype: torch.dtype, device: torch.device) -> Data:
    """Return the rows on the device, or batch by batch if they are not in memory, or a
    GPU lacks room for them.
    """
    if isinstance(table, Streamed):
        return _read_batches(table, dtype, device)
    if table.units is not None or has_room(device, table.X.size * dtype.itemsize):
        return copy_rows(table, dtype, device)
    source = Arrays(table.X, table.y, table.weight)
    return Stream(source, table.y, table.weight, table.n_rows, dtype, device)


def copy_rows(table: Table, dtype: torch.dtype, device: torch.device) -> RowsInMemory:
    """Return the rows of a table in memory as tensors."""
    X = torch.tensor(table.X, dtype=dtype, device=device)
    if table.member is None:
        y = table.y
    else:
        y = np.column_stack([table.member, table.y])
    return RowsInMemory(
        X, torch.tensor(y, device=device), torch.tensor(table.weight, device=device)
    )


def _read_batches(table: Streamed, dtype: torch.dtype, device: torch.device) -> Stream:
    y = table.read.y
    if table.n_classes == 1:  # targets
        shift, scale = table.units
        y = (y - shift) / scale
    return Stream(
        table.read, y, table.read.weight, table.n_rows, dtype, device, table.first
    )


def has_room(device: torch.device, size: int) -> bool:
    """Return whether a table of this many bytes leaves a device room to work."""
    return device.type != "cuda" or size <= ROOM * torch.cuda.mem_get_info(device)[0]
