"""Read ahead in a thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def prefetch(items: Iterator[T], depth: int = 2) -> Iterator[T]:
    """Yield the same items, with up to `depth` prefetched in a thread.

    The thread ends with the generator, and its exceptions are raised here.
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
