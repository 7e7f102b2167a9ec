"""Compile in the background what torch compiles on the first use of a GPU."""

from __future__ import annotations

from threading import Thread

import torch


def warm_up(device: torch.device, dtype: torch.dtype) -> None:
    """Start compiling the tails of the normal distribution: it takes seconds per process.

    Rows are prepared meanwhile. A CPU needs none of it.
    """
    if device.type == "cuda":
        Thread(target=_compile, args=(device, dtype), daemon=True).start()


def _compile(device: torch.device, dtype: torch.dtype) -> None:
    x = torch.zeros(1, device=device, dtype=dtype)
    torch.special.erfcx(x)
    torch.special.log_ndtr(x)
