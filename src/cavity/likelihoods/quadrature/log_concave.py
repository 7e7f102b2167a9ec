"""The integrand of "one normal is the largest of many", and its mode. [METHOD 4, REP; METHOD 8]"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cavity.likelihoods.normal_tails import hazard, log_ndtr


class Integrand(NamedTuple):
    """g(x) = −x²/2 + Σ_c log Φ((x − μ_c)/s_c), x in units of the normal, its mean at 0: log-concave, with −g'' ≥ 1."""

    mean: Tensor  # [B R], of the rivals
    rate: Tensor  # [B R], 1/s

    def z(self, x: Tensor) -> Tensor:
        """Return (x − μ_c)/s_c at points [B Q], [B Q R]."""
        return (x[..., None] - self.mean[:, None]) * self.rate[:, None]

    def log_value(self, x: Tensor) -> Tensor:
        """Return g at points [B Q]."""
        return log_ndtr(self.z(x)).sum(-1) - 0.5 * x * x

    def start(self) -> Tensor:
        """Return a point left of the mode, [B]: β(z) > −z, so the mode lies right of where each rival's −z balances x."""
        curve = self.rate.square()
        return (self.mean * curve / (1 + curve)).amax(-1).clamp_min(0)

    def derivatives(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return g' and −g'' at x, [B], accurate enough for a step."""
        z = (x[:, None] - self.mean) * self.rate
        h = hazard(z)
        bend = torch.where(z < -1e4, 1.0, h * (h + z))
        return (h * self.rate).sum(-1) - x, (bend * self.rate.square()).sum(-1) + 1

    def find_mode(self, steps: int) -> Tensor:
        """Return the point where g' = 0, [B]. g' is convex and decreasing, so Newton's steps from the left never overshoot."""
        x = self.start()
        for _ in range(steps):
            slope, bend = self.derivatives(x)
            x = x + slope / bend
        return x
