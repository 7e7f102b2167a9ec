"""Threads by size: small operations take one thread, because several would wait for each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

ONE_THREAD_WORK = (
    10**8
)  # multiply-adds of one C × M × M × batch product, up to which one thread is as fast as two


@contextmanager
def limit_threads(work: int) -> Iterator[None]:
    """Use one thread within the block if a step's largest product is small; restore the user's setting afterwards.

    Threads of a small operation spin while they wait for each other. On a machine with other work they wait for a core, too,
    and a fit takes many times as long.
    """
    before = torch.get_num_threads()
    if work > ONE_THREAD_WORK or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
