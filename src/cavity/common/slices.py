"""Rows, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator


def slices(n: int, size: int) -> Iterator[slice]:
    """Yield slices of n rows, `size` at a time; without rows one empty slice."""
    return (slice(start, start + size) for start in range(0, max(1, n), size))
