"""log Φ from a table of cubic polynomials: on a CPU, erfcx takes several times as long. [METHOD 10]"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from cavity.likelihoods.normal_tails import log_ndtr

LOW, HIGH = -37.0, 9.0  # Φ < 1e-299 on the left, and 1 in float64 on the right
CELLS = 256  # per unit of z: the cubics err by less than 1e-13
DEGREE = 3


class Table:
    """`largest.by_erfcx` from the table. Arrays are used again: memory that is new to a process costs as much as the arithmetic."""

    def __init__(self) -> None:
        self._numbers = torch.empty(4, 0, dtype=torch.float64)
        self._cells = torch.empty(0, dtype=torch.int32)

    def __call__(self, shift: Tensor, rate: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
        """Return √(2π) φ/Φ, which the next call overwrites, and −Σ log Φ at z = shift + rate · d."""
        shape = (*rate.shape, d.shape[1])
        t = self._reserve(torch.Size(shape).numel())[0].view(shape)  # z in cells of the table
        torch.addcmul((CELLS * shift)[..., None], (CELLS * rate)[..., None], d[:, None], out=t)
        minus_log = self.minus_log_cdf(t)
        total = minus_log.sum(1)
        return minus_log.addcmul_(t, t, value=-0.5 / CELLS**2).exp_(), total

    def minus_log_cdf(self, t: Tensor) -> Tensor:
        """Return −log Φ(t/CELLS), for t/CELLS < LOW that of LOW. The next call overwrites it."""
        _, found, local, coefficient = self._reserve(t.numel())
        cell = self._cells[: t.numel()]
        torch.clamp(t.view(-1), CELLS * LOW, CELLS * HIGH, out=local).sub_(CELLS * LOW)
        cell.copy_(local).clamp_(min=0)  # rounds down; NaN may become any integer
        local.frac_()
        highest, *lower = _coefficients()
        torch.index_select(highest, 0, cell, out=found)
        for values in lower:
            torch.index_select(values, 0, cell, out=coefficient)
            torch.addcmul(coefficient, found, local, out=found)
        return found.view(t.shape)

    def _reserve(self, size: int) -> Tensor:
        if size > self._cells.numel():
            self._numbers, self._cells = self._numbers.new_empty(4, size), self._cells.new_empty(size)
        return self._numbers[:, :size]


@cache
def _coefficients() -> tuple[Tensor, ...]:
    """Return the coefficients of −log Φ in each cell, highest power first: cubics through the Chebyshev points; 0 beyond HIGH."""
    n = int((HIGH - LOW) * CELLS)
    angles = torch.pi * (torch.arange(DEGREE + 1, dtype=torch.float64) + 0.5) / (DEGREE + 1)
    x = 0.5 + 0.5 * angles.cos()  # in [0, 1]
    z = LOW + (torch.arange(n, dtype=torch.float64)[:, None] + x) / CELLS
    values = torch.linalg.solve(torch.linalg.vander(x), -log_ndtr(z).mT)  # [4 n], lowest power first
    return torch.nn.functional.pad(values, (0, 1)).flip(0).unbind(0)
