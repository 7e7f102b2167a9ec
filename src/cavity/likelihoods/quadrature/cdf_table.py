"""log Φ from a table of cubic polynomials: on a CPU, erfcx takes several times as long. [METHOD 10]"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from cavity.likelihoods.normal_tails import log_ndtr

LOW, HIGH = -37.0, 9.0  # Φ < 1e-299 on the left, and 1 in float64 on the right
CELLS = 256  # per unit of z: the cubics err by less than 1e-13
DEGREE = 3


class Workspace:
    """Arrays that are used again for every piece of rows: memory that is new to a process costs as much as the arithmetic."""

    def __init__(self, size: int) -> None:
        self._numbers = torch.empty(4, size, dtype=torch.float64)
        self._cells = torch.empty(size, dtype=torch.int32)

    def reserve(self, shape: tuple[int, ...]) -> Tensor:
        """Return an array for the argument of `minus_log_cdf`."""
        return self._numbers[0, : torch.Size(shape).numel()].view(shape)

    def minus_log_cdf(self, t: Tensor) -> Tensor:
        """Return −log Φ(t/CELLS), for t/CELLS < LOW that of LOW. The next call overwrites it."""
        size = t.numel()
        found, local, coefficient = self._numbers[1:, :size]
        cell = self._cells[:size]
        torch.clamp(t.view(-1), CELLS * LOW, CELLS * HIGH, out=local).sub_(CELLS * LOW)
        cell.copy_(local).clamp_(min=0)  # rounds down; NaN may become any integer
        local.frac_()
        highest, *lower = _table()
        torch.index_select(highest, 0, cell, out=found)
        for values in lower:
            torch.index_select(values, 0, cell, out=coefficient)
            torch.addcmul(coefficient, found, local, out=found)
        return found.view(t.shape)


def make_evaluator(size: int) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return the function of `trapezoid.by_erfcx` from the table, for `size` points at most at a time."""
    work = Workspace(size)

    def evaluate(shift: Tensor, rate: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        t = work.reserve((*rate.shape, f.shape[1]))  # z in cells of the table
        torch.addcmul((CELLS * shift)[..., None], (CELLS * rate)[..., None], f[:, None], out=t)
        minus_log = work.minus_log_cdf(t)
        product = minus_log.sum(1).neg_().exp_()
        return minus_log.addcmul_(t, t, value=-0.5 / CELLS**2).exp_(), product

    return evaluate


@cache
def _table() -> tuple[Tensor, ...]:
    """Return the coefficients of −log Φ in each cell, highest power first: cubics through the Chebyshev points; 0 beyond HIGH."""
    n = int((HIGH - LOW) * CELLS)
    angles = torch.pi * (torch.arange(DEGREE + 1, dtype=torch.float64) + 0.5) / (DEGREE + 1)
    x = 0.5 + 0.5 * angles.cos()  # in [0, 1]
    z = LOW + (torch.arange(n, dtype=torch.float64)[:, None] + x) / CELLS
    values = torch.linalg.solve(torch.linalg.vander(x), -log_ndtr(z).mT)  # [4 n], lowest power first
    return torch.nn.functional.pad(values, (0, 1)).flip(0).unbind(0)
