"""Prefetching in a thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def prefetch(items: Iterator[T], depth: int = 2) -> Iterator[T]:
    """Yield the same items, with up to `depth` of them prefetched in a thread.

    Exceptions of the thread are raised here. The thread ends after the last item, or when the caller closes the
    generator.
    """
    end: Any = object()
    pool = ThreadPoolExecutor(1, "cavity-prefetch")
    try:
        waiting = deque(pool.submit(next, items, end) for _ in range(depth))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(pool.submit(next, items, end))
            yield item
    finally:
        pool.shutdown(cancel_futures=True)
        if hasattr(items, "close"):
            items.close()
