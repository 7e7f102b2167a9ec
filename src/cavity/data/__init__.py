"""Rows for the engine: batches that carry their row numbers."""

from cavity.data.arrays import Batch, Rows

__all__ = ["Batch", "Rows"]
