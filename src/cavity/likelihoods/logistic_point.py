"""The logistic likelihood at a point, for Laplace's method. [METHOD 4]"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from cavity.likelihoods.base import LIKELIHOODS, Latents, Moments
from cavity.likelihoods.probit import signs
from cavity.likelihoods.softmax import Logistic


@LIKELIHOODS.register
class LogisticPoint(Logistic):
    r"""The logistic likelihood σ(±f) at f = m, the limit of ∫ σ(±f) N(f; m, v) df as v → 0, for Laplace's method.

    With s = σ(±m):  d₁ = ±(1 − s),  d₂ = −s(1 − s),  d₃ = ∓s(1 − s)(1 − 2s),  and ∂ log Z/∂v → ½(d₂ + d₁²).

    Parameters
    ----------
    probit : bool
        Whether to predict σ(m/√(1 + πv/8)) instead of the integral by quadrature; the error is at most 0.02.

    Examples
    --------
    >>> import torch
    >>> from cavity.likelihoods import LogisticPoint
    >>> float(LogisticPoint().third(torch.zeros(1, 1), torch.tensor([1])).abs())
    0.0
    """

    def moments(self, f: Latents, y: Tensor, exponent: Tensor | None) -> Moments:
        sign = signs(y, f.mean)
        s, rest = torch.sigmoid(sign * f.mean), torch.sigmoid(-sign * f.mean)
        dv = 0.5 * rest * (rest - s)
        return Moments(logsigmoid(sign * f.mean)[:, 0], sign * rest, dv, dv)

    def third(self, mean: Tensor, y: Tensor) -> Tensor:
        """Return ∂³ log p/∂f³, [B 1]: how the width of q changes with its mode."""
        sign = signs(y, mean)
        s = torch.sigmoid(sign * mean)
        return -sign * s * (1 - s) * (1 - 2 * s)
