"""Work that a GPU does beside its main stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import torch

T = TypeVar("T")


def run_on_side_stream(device: torch.device, work: Callable[[], T]) -> Callable[[], T]:
    """Start work whose result is asked for later; where there is nothing beside which to do it, it is done at once.

    The result must be asked for before what the work reads may change. Its memory is safe: whatever follows on the side stream
    waits for the main one.
    """
    if device.type != "cuda":
        done = work()
        return lambda: done
    main, side = torch.cuda.current_stream(device), _side(device)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        result = work()

    def joined() -> T:
        torch.cuda.current_stream(device).wait_stream(side)
        return result

    return joined


@cache
def _side(device: torch.device) -> Any:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
