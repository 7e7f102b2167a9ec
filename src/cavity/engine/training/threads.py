"""Settings of torch: numbers of threads, and no denormal numbers in float32.

Small operations, and processes after a fork, use one thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from cavity.common.blas_threads import ONE_BLAS_THREAD, find_libraries

# multiply-adds of a C × M × M × batch product for which one thread is fast enough
ONE_THREAD_WORK = 10**8


class _Limit:
    """One thread, as long as any fit of the process asks for it.

    BLAS's number of threads belongs to the process, torch's to each thread. The first
    fit to enter notes torch's, and each fit restores it for its own thread.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.fits = 0
        self.torch = 1

    def __enter__(self) -> None:
        with self.lock:
            # a thread's first call takes the number that any thread set last
            found = torch.get_num_threads()
            if not self.fits:
                self.torch = found
            ONE_BLAS_THREAD.__enter__()
            self.fits += 1
            torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.fits -= 1
            ONE_BLAS_THREAD.__exit__()
            torch.set_num_threads(self.torch)


_ONE_THREAD = _Limit()  # of the process, as the setting is
# OpenMP's threads do not survive a fork, and the child would wait for them for ever
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


def limit_openmp() -> AbstractContextManager[Any]:
    """Use one thread of OpenMP within the block.

    Next to other work, scikit-learn's threads wait for each other.
    """
    return find_libraries().limit(limits=1, user_api="openmp")


def limit_threads(work: int) -> AbstractContextManager[None]:
    """Use one thread within the block if a step's largest product is small.

    Threads of small operations wait for each other.
    """
    return nullcontext() if work > ONE_THREAD_WORK else _ONE_THREAD


@contextmanager
def flush_denormals(dtype: torch.dtype) -> Iterator[None]:
    """Round numbers below float32's normal range to 0 within the block.

    On x86 each of them takes up to a hundred times as long.
    """
    if dtype != torch.float32:
        yield
        return

    before = flushes_denormals()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def flushes_denormals() -> bool:
    """Return whether torch rounds denormal numbers to 0.

    No function of torch tells.
    """
    return not bool(torch.tensor(1e-310, dtype=torch.float64) * 1.0)
