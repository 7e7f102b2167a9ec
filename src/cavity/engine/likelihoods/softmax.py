"""The softmax and logistic likelihoods. [docs/decisions/0007; METHOD 4]

They are for variational inference and Laplace's method.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from cavity.engine.likelihoods.base import LIKELIHOODS, Latents, Likelihood, Moments
from cavity.engine.likelihoods.outcomes import DrawnBySoftmax, WithOutcome
from cavity.engine.likelihoods.probit import signs
from cavity.engine.likelihoods.quadrature.probabilities import LOGISTIC
from cavity.engine.likelihoods.quadrature.softmax_integrals import (
    sigmoid_average,
    softmax_average,
)
from cavity.errors import BadOption


class _Softened(WithOutcome, Likelihood):
    @property
    def outcome(self) -> DrawnBySoftmax:
        return DrawnBySoftmax(self._classes())


@LIKELIHOODS.register
class Softmax(_Softened):
    """Softmax, exp f_y / Σ_c exp f_c, for variational inference.

    One site per class. Two classes have `Logistic`.

    Parameters
    ----------
    n_classes : int or None
        Number of classes; None until `bind`.
    """

    name = "softmax"

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


@LIKELIHOODS.register
class Logistic(_Softened):
    """Logistic curve σ(±f) of one latent function, for two classes.

    It is for variational inference. One site per row.

    Parameters
    ----------
    predictive : {"quadrature", "probit", "mode"}, default="quadrature"
        Probabilities: E σ(±f) by quadrature, σ(±m/√(1 + πv/8)), or σ(±m).

    Examples
    --------
    >>> import torch
    >>> from cavity.likelihoods import Logistic
    >>> mean, var = torch.tensor([[2.0]]), torch.tensor([[9.0]])
    >>> for predictive in ("quadrature", "probit", "mode"):
    ...     log_p = Logistic(predictive).log_probability(mean, var)
    ...     print(round(float(log_p[0, 1].exp()), 3))
    0.717
    0.719
    0.881
    """

    two_classes = True
    n_classes = 2

    def __init__(self, predictive: str = "quadrature") -> None:
        self.predictive = predictive

    @property
    def outcome(self) -> DrawnBySoftmax:
        return DrawnBySoftmax(2, predictive=self.predictive)

    def bind(self, n_classes: int) -> Likelihood:
        if self.predictive not in LOGISTIC:
            raise BadOption(
                f"predictive={self.predictive!r} is unknown; use one of "
                f"{', '.join(map(repr, LOGISTIC))}."
            )

        return super().bind(n_classes)

    def average(self, f: Latents, y: Tensor) -> Moments:
        sign = signs(y, f.mean)
        value, dm, dv = sigmoid_average(sign * f.mean, f.var)
        return Moments(value[:, 0], sign * dm, dv, dv)


@LIKELIHOODS.register
class LogisticPoint(Logistic):
    """The logistic likelihood σ(±f) at f = m, for Laplace's method.

    It is the limit of ∫ σ(±f) N(f; m, v) df as v → 0. With s = σ(±m):

        d₁ = ±(1 − s)    d₂ = −s(1 − s)    d₃ = ∓s(1 − s)(1 − 2s)    ∂/∂v → ½(d₂ + d₁²)
    """

    def moments(self, f: Latents, y: Tensor, exponent: Tensor | None) -> Moments:
        sign = signs(y, f.mean)
        own = sign * f.mean
        s = own.sigmoid()
        rest = (-own).sigmoid()
        dv = 0.5 * rest * (rest - s)
        return Moments(logsigmoid(own)[:, 0], sign * rest, dv, dv)

    def third(self, mean: Tensor, y: Tensor) -> Tensor:
        sign = signs(y, mean)
        s = torch.sigmoid(sign * mean)
        return -sign * s * (1 - s) * (1 - 2 * s)
