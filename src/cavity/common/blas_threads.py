"""One thread of BLAS, for small operations and next to threads of Python.

Does not load torch.
"""

from __future__ import annotations

import sys
import threading
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


def find_libraries() -> ThreadpoolController:
    """Return the loaded libraries of BLAS and OpenMP."""
    return _find_libraries(tuple(name in sys.modules for name in ("scipy", "torch")))


@cache
def _find_libraries(_: tuple[bool, ...]) -> ThreadpoolController:
    """Find them once: it takes milliseconds that a small fit notices."""
    return ThreadpoolController()


class _OneThread:
    """One thread of BLAS within the block, in the whole process.

    The number of threads belongs to the process: the first block to enter notes it, and
    the last one to leave restores it.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.blocks = 0
        self.limit: Any = None

    def __enter__(self) -> None:
        with self.lock:
            if not self.blocks:
                self.limit = find_libraries().limit(limits=1, user_api="blas")
            self.blocks += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.blocks -= 1
            if not self.blocks:
                self.limit.restore_original_limits()


ONE_BLAS_THREAD = _OneThread()
