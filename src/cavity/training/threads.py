"""Settings of torch during a fit: one thread for small operations, no denormal numbers in float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits

ONE_THREAD_WORK = (
    10**8
)  # multiply-adds of one C × M × M × batch product, up to which one thread is as fast as two


@contextmanager
def limit_threads(work: int) -> Iterator[None]:
    """Use one thread within the block if a step's largest product is small; restore the user's setting afterwards.

    Threads of a small operation spin while they wait for each other. On a machine with other work they wait for a core, too,
    and a fit takes many times as long.
    """
    if work > ONE_THREAD_WORK:
        yield
        return
    with threadpool_limits(1, "blas"):  # NumPy's and SciPy's, whose threads torch does not control
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)


@contextmanager
def flush_denormals(dtype: torch.dtype) -> Iterator[None]:
    """Round numbers below float32's normal range to 0 within the block; restore the user's setting afterwards.

    Kernels of distant rows are such numbers (1e-40), and x86 processors take up to a hundred times as long for each of them.
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
    """Return whether torch rounds denormal numbers to 0: it has no function that says so."""
    return not bool(torch.tensor(1e-310, dtype=torch.float64) * 1.0)
