"""The softmax and logistic likelihoods, for variational inference. [docs/decisions/0007]"""

from __future__ import annotations

import torch
from torch import Tensor

from cavity.common.namespaces import Array
from cavity.likelihoods.base import LIKELIHOODS, Latents, Likelihood, Moments
from cavity.likelihoods.probit import signs
from cavity.likelihoods.quadrature.information import EntropyParts, Latent, uncertainty
from cavity.likelihoods.quadrature.noisy_argmax import softened
from cavity.likelihoods.quadrature.probabilities import log_logistic, log_logistic_by_probit, log_softmax
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

    Examples
    --------
    >>> import torch
    >>> from cavity.likelihoods import Softmax
    >>> likelihood = Softmax().bind(3)
    >>> mean, var = torch.zeros(1, 3).double(), torch.ones(1, 3).double()
    >>> likelihood.log_probability(mean, var).exp().numpy().round(2)
    array([[0.33, 0.33, 0.33]])
    """

    name = "softmax"
    points = True

    def __init__(self, n_classes: int | None = None) -> None:
        self.n_classes = n_classes

    def bind(self, n_classes: int) -> Likelihood:
        if n_classes != 2:
            return super().bind(n_classes)
        self._check_classes(n_classes)
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
