"""Prefetching in a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

T = TypeVar("T")
WAIT = 0.05  # seconds between checks whether the consumer has stopped


def prefetch(items: Iterator[T], depth: int = 2) -> Iterator[T]:
    """Yield the same items, with up to `depth` of them prefetched in a thread.

    Exceptions of the thread are raised here. The thread ends after the last item, or when the caller closes the
    generator.
    """
    waiting: queue.Queue[tuple[str, Any]] = queue.Queue(depth)
    stop = threading.Event()

    def put(kind: str, value: Any) -> None:
        while not stop.is_set():
            try:
                return waiting.put((kind, value), timeout=WAIT)
            except queue.Full:
                pass

    def work() -> None:
        try:
            for item in items:
                put("item", item)
                if stop.is_set():
                    break
            put("end", None)
        except BaseException as error:
            put("error", error)
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()

    thread = threading.Thread(target=work, name="cavity-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            kind, value = waiting.get()
            if kind == "error":
                raise value
            if kind == "end":
                return
            yield value
    finally:
        stop.set()
        thread.join()
