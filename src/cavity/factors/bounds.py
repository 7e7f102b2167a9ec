"""Quadratic stand-ins for the logarithm of the logistic curve, under which the optimum of q has a closed form.

Both are averages of a parabola in f that touches log σ(±f) at ξ, so a natural-gradient step of length one is that optimum for the
ξ at hand, and the next sweep moves ξ.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from cavity.factors.base import LIKELIHOODS, Latents, Moments
from cavity.factors.probit import signs
from cavity.factors.softmax import Logistic


@LIKELIHOODS.register
class Jaakkola(Logistic):
    r"""log σ(x) ≥ log σ(ξ) + (x − ξ)/2 − λ(ξ)(x² − ξ²),  λ(ξ) = tanh(ξ/2)/(4ξ), a bound everywhere.      [review 2.3.1]

    Under N(m, V) it is highest at ξ² = m² + V, where ∂/∂m = ±½ − 2λm and ∂/∂V = −λ: sites τ = 2λ, ν = ±½.
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
    r"""log σ(±f) to second order around ξ = m: log σ + ½ d₂ V, with τ = −d₂ and ν = d₁ + τm.      [review 2.3.2]

    No bound. The derivatives are those at fixed ξ, and as ξ = m is not the best one [docs/errata.md], not those of `value`.
    """

    bounds = False

    def average(self, f: Latents, y: Tensor) -> Moments:
        sign = signs(y, f.mean)
        s, rest = torch.sigmoid(sign * f.mean), torch.sigmoid(-sign * f.mean)
        dv = -0.5 * s * rest
        return Moments((logsigmoid(sign * f.mean) + dv * f.var)[:, 0], sign * rest, dv, dv)
