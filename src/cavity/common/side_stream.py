"""Run work on a CUDA side stream, next to the main stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import torch

T = TypeVar("T")


def run_on_side_stream(device: torch.device, work: Callable[[], T]) -> Callable[[], T]:
    """Start work on a side stream and return a function that waits for its result; on the CPU, run eagerly.

    Ask for the result before changing anything that the work reads. The result's memory is safe, because later work on the side
    stream waits for the main stream.
    """
    if device.type != "cuda":
        done = work()
        return lambda: done
    main, side = torch.cuda.current_stream(device), _side_stream(device)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        result = work()

    def wait() -> T:
        torch.cuda.current_stream(device).wait_stream(side)
        return result

    return wait


@cache
def _side_stream(device: torch.device) -> Any:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
