"""The softmax and logistic likelihoods, for variational inference and Laplace's method. [docs/decisions/0007; METHOD 4]

Jaakkola and Taylor average a parabola in f that touches log σ(±f) at ξ: under it the optimal q has a closed form. A step of the
natural gradient of length one is therefore the optimum for the current ξ, and the next sweep moves ξ.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from cavity.common.namespaces import Array
from cavity.likelihoods.base import LIKELIHOODS, Latents, Likelihood, Moments
from cavity.likelihoods.probit import signs
from cavity.likelihoods.quadrature.information import EntropyParts, Latent, uncertainty
from cavity.likelihoods.quadrature.probabilities import log_logistic, log_logistic_by_probit, log_softmax
from cavity.likelihoods.quadrature.softened import softened
from cavity.likelihoods.quadrature.softmax import sigmoid_average, softmax_average


class _Softened(Likelihood):
    """Probabilities are averages of a softmax."""

    def uncertainty(self, mean: Tensor, var: Tensor, noise: Tensor) -> EntropyParts:
        log_p = self.log_probability(mean, var + noise)
        return uncertainty(Latent(mean, var, log_p, 0.0), softened(noise))


@LIKELIHOODS.register
class Softmax(_Softened):
    """Softmax, exp f_y / Σ_c exp f_c, for variational inference. One site per class. Two classes have `Logistic`.

    Parameters
    ----------
    n_classes : int or None
        Number of classes; None until `bind`.
    """

    name = "softmax"
    points = True

    def __init__(self, n_classes: int | None = None) -> None:
        self.n_classes = n_classes

    def _for_two_classes(self) -> Likelihood:
        return Logistic()

    def average(self, f: Latents, y: Tensor) -> Moments:
        r"""E log p = m_y − E log Σ_c exp f_c."""
        average = softmax_average(f.mean, f.var)
        own = torch.zeros_like(f.mean).scatter(1, y[:, None], 1.0)
        value = f.mean.gather(1, y[:, None])[:, 0] - average.value
        return Moments(value, own - average.dm, -average.dv, -average.dv)

    def log_probability(self, mean: Array, var: Array) -> Array:
        return log_softmax(mean, var)

    def log_probability_at(self, f: Tensor) -> Tensor:
        return f.log_softmax(-1)


@LIKELIHOODS.register
class Logistic(_Softened):
    r"""Logistic curve σ(±f) of one latent function for two classes, for variational inference. One site per row.

    Parameters
    ----------
    probit : bool
        Whether to predict σ(m/√(1 + πv/8)) instead of the integral by quadrature; the error is at most 0.02.

    Examples
    --------
    >>> import torch
    >>> from cavity.likelihoods import Logistic
    >>> mean, var = torch.full((1, 1), 1.0).double(), torch.ones(1, 1).double()
    >>> Logistic().log_probability(mean, var).exp().numpy().round(2)
    array([[0.3, 0.7]])
    """

    two_classes = True
    n_classes = 2

    def __init__(self, probit: bool = False) -> None:
        self.probit = probit

    def average(self, f: Latents, y: Tensor) -> Moments:
        sign = signs(y, f.mean)
        value, dm, dv = sigmoid_average(sign * f.mean, f.var)
        return Moments(value[:, 0], sign * dm, dv, dv)

    def log_probability(self, mean: Array, var: Array) -> Array:
        return (log_logistic_by_probit if self.probit else log_logistic)(mean, var)


@LIKELIHOODS.register
class Jaakkola(Logistic):
    r"""The logistic likelihood with the bound of Jaakkola and Jordan, for two classes. [review 2.3.1]

        log σ(x) ≥ log σ(ξ) + (x − ξ)/2 − λ(ξ)(x² − ξ²),   λ(ξ) = tanh(ξ/2)/(4ξ)

    Under N(m, V) it is highest at ξ² = m² + V, where ∂/∂m = ±½ − 2λm and ∂/∂V = −λ: sites τ = 2λ, ν = ±½.

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
    """

    bounds = False

    def average(self, f: Latents, y: Tensor) -> Moments:
        sign = signs(y, f.mean)
        s, rest = torch.sigmoid(sign * f.mean), torch.sigmoid(-sign * f.mean)
        dv = -0.5 * s * rest
        return Moments((logsigmoid(sign * f.mean) + dv * f.var)[:, 0], sign * rest, dv, dv)


@LIKELIHOODS.register
class LogisticPoint(Logistic):
    r"""The logistic likelihood σ(±f) at f = m, the limit of ∫ σ(±f) N(f; m, v) df as v → 0, for Laplace's method.

    With s = σ(±m):  d₁ = ±(1 − s),  d₂ = −s(1 − s),  d₃ = ∓s(1 − s)(1 − 2s),  and ∂ log Z/∂v → ½(d₂ + d₁²).
    """

    def moments(self, f: Latents, y: Tensor, exponent: Tensor | None) -> Moments:
        sign = signs(y, f.mean)
        s, rest = torch.sigmoid(sign * f.mean), torch.sigmoid(-sign * f.mean)
        dv = 0.5 * rest * (rest - s)
        return Moments(logsigmoid(sign * f.mean)[:, 0], sign * rest, dv, dv)

    def third(self, mean: Tensor, y: Tensor) -> Tensor:
        sign = signs(y, mean)
        s = torch.sigmoid(sign * mean)
        return -sign * s * (1 - s) * (1 - 2 * s)
