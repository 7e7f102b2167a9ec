"""Quadratic approximations of log σ, under which the optimal q has a closed form.

Both average a parabola in f that touches log σ(±f) at ξ. A natural-gradient step of length one is therefore the optimum for the
current ξ, and the next sweep moves ξ.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from cavity.likelihoods.base import LIKELIHOODS, Latents, Moments
from cavity.likelihoods.probit import signs
from cavity.likelihoods.softmax import Logistic


@LIKELIHOODS.register
class Jaakkola(Logistic):
    r"""The logistic likelihood with the bound of Jaakkola and Jordan, for two classes. [review 2.3.1]

        log σ(x) ≥ log σ(ξ) + (x − ξ)/2 − λ(ξ)(x² − ξ²),   λ(ξ) = tanh(ξ/2)/(4ξ)

    Under N(m, V) it is highest at ξ² = m² + V, where ∂/∂m = ±½ − 2λm and ∂/∂V = −λ: sites τ = 2λ, ν = ±½.

    Parameters
    ----------
    probit : bool
        Whether to predict σ(m/√(1 + πv/8)) instead of the integral by quadrature; the error is at most 0.02.

    Examples
    --------
    >>> import torch
    >>> from cavity.likelihoods import Jaakkola, Latents, Logistic
    >>> f, y = Latents(*torch.ones(3, 4, 1).double()), torch.tensor([0, 1, 1, 0])
    >>> bool((Jaakkola().average(f, y).value < Logistic().average(f, y).value).all())
    True
    """

    def average(self, f: Latents, y: Tensor) -> Moments:
        sign = signs(y, f.mean)
        xi = (f.mean.square() + f.var).sqrt()
        slope = curvature(xi)
        value = logsigmoid(xi) + 0.5 * (sign * f.mean - xi)
        return Moments(value[:, 0], 0.5 * sign - 2 * slope * f.mean, -slope, -slope)


def curvature(xi: Tensor) -> Tensor:
    """λ(ξ) = tanh(ξ/2)/(4ξ), 1/8 − ξ²/96 near zero."""
    small = xi.abs() < 1e-3
    safe = torch.where(small, torch.ones_like(xi), xi)
    return torch.where(small, 0.125 - xi.square() / 96, torch.tanh(0.5 * safe) / (4 * safe))


@LIKELIHOODS.register
class Taylor(Logistic):
    r"""The logistic likelihood to second order around ξ = m. [review 2.3.2]

        E log σ ≈ log σ + ½ d₂ V,   τ = −d₂,   ν = d₁ + τm

    This is not a bound. The derivatives are those at fixed ξ. They differ from those of `value`, because ξ = m is not the best ξ
    [METHOD 12].

    Parameters
    ----------
    probit : bool
        Whether to predict σ(m/√(1 + πv/8)) instead of the integral by quadrature; the error is at most 0.02.

    Examples
    --------
    >>> from cavity.likelihoods import Taylor
    >>> Taylor().bounds
    False
    """

    bounds = False

    def average(self, f: Latents, y: Tensor) -> Moments:
        sign = signs(y, f.mean)
        s, rest = torch.sigmoid(sign * f.mean), torch.sigmoid(-sign * f.mean)
        dv = -0.5 * s * rest
        return Moments((logsigmoid(sign * f.mean) + dv * f.var)[:, 0], sign * rest, dv, dv)
