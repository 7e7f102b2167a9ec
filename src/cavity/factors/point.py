"""Likelihoods looked at in a point: what Laplace's method asks. [METHOD 4]"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from cavity.factors.base import LIKELIHOODS, Latents, Moments
from cavity.factors.probit import signs
from cavity.factors.softmax import Logistic


@LIKELIHOODS.register
class LogisticPoint(Logistic):
    r"""σ(±f) at f = m, the limit of ∫ σ(±f) N(f; m, v) df as v → 0.

    With s = σ(±m):  d₁ = ±(1 − s),  d₂ = −s(1 − s),  d₃ = ∓s(1 − s)(1 − 2s),  and ∂ log Z/∂v → ½(d₂ + d₁²).
    """

    def moments(self, f: Latents, y: Tensor, exponent: Tensor | None) -> Moments:
        sign = signs(y, f.mean)
        s, rest = torch.sigmoid(sign * f.mean), torch.sigmoid(-sign * f.mean)
        dv = 0.5 * rest * (rest - s)
        return Moments(logsigmoid(sign * f.mean)[:, 0], sign * rest, dv, dv)

    def third(self, mean: Tensor, y: Tensor) -> Tensor:
        """∂³ log p/∂f³ [B 1]: how the width of q moves with its mode."""
        sign = signs(y, mean)
        s = torch.sigmoid(sign * mean)
        return -sign * s * (1 - s) * (1 - 2 * s)
