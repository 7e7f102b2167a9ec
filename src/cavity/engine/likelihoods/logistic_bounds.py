"""Parabolas in place of log σ(±f), for two classes. [review 2.3; METHOD 9]

They are for variational inference. A parabola that touches log σ(±f) at ξ has an
average in closed form, and so has the best q. A natural-gradient step of length one
reaches that q; the next step moves ξ.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from cavity.engine.likelihoods.base import LIKELIHOODS, Latents, Moments
from cavity.engine.likelihoods.probit import signs
from cavity.engine.likelihoods.softmax import Logistic

SMALL = 1e-3  # |ξ| below which the series of λ is used, exact to 1e-15


@LIKELIHOODS.register
class Jaakkola(Logistic):
    r"""The logistic likelihood with Jaakkola and Jordan's bound. [review 2.3.1]

    It is for two classes. A parabola lies below log σ and touches it at ±ξ:

        log σ(x) ≥ log σ(ξ) + (x − ξ)/2 − λ(ξ)(x² − ξ²)      λ(ξ) = tanh(ξ/2)/(4ξ)

    Its average under x ~ N(±m, V) is largest at ξ² = m² + V:

        E = log σ(ξ) + (±m − ξ)/2      ∂E/∂m = ±½ − 2λm      ∂E/∂V = −λ

    so the site is τ = 2λ, ν = ±½. Its parameters are those of `Logistic`.

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
        dm = 0.5 * sign - 2 * slope * f.mean
        return Moments(value[:, 0], dm, -slope, -slope)


def curvature(xi: Tensor) -> Tensor:
    """Return λ(ξ) = tanh(ξ/2)/(4ξ), near zero 1/8 − ξ²/96."""
    small = xi.abs() < SMALL
    safe = torch.where(small, 1.0, xi)
    series = 0.125 - xi.square() / 96
    return torch.where(small, series, torch.tanh(0.5 * safe) / (4 * safe))


@LIKELIHOODS.register
class Taylor(Logistic):
    r"""The logistic likelihood to second order around ξ = m. [review 2.3.2]

    It is for two classes.

        E log σ(±f) ≈ log σ(±ξ) + d₁ (m − ξ) + ½ d₂ (V + (m − ξ)²)
        d₁ = ±σ(∓ξ)      d₂ = −σ(ξ) σ(−ξ)

    so the site is τ = −d₂, ν = d₁ + τm. This is not a bound. The derivatives are taken
    at fixed ξ, and ξ = m does not maximise `value`. Its parameters are those of
    `Logistic`.
    """

    bounds = False

    def average(self, f: Latents, y: Tensor) -> Moments:
        sign = signs(y, f.mean)
        s = torch.sigmoid(sign * f.mean)
        rest = torch.sigmoid(-sign * f.mean)
        half = -0.5 * s * rest  # ½ d₂
        value = logsigmoid(sign * f.mean) + half * f.var
        return Moments(value[:, 0], sign * rest, half, half)
