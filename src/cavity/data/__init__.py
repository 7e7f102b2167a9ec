"""Rows for the engine: batches that carry their row numbers."""

from cavity.data.arrays import Batch, Rows
from cavity.data.shard import Shard

__all__ = ["Batch", "Rows", "Shard"]
