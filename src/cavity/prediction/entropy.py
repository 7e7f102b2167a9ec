"""The entropy of a prediction in two parts, temperature and pool included. Does not load torch. [docs/decisions/0014]"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.tabular import Tabular
from cavity.likelihoods.quadrature.information import Latent, uncertainty
from cavity.likelihoods.quadrature.noisy_argmax import Largest

Array = NDArray[np.float64]


class _Entropies(NamedTuple):
    total: Array
    aleatoric: Array
    epistemic: Array


class Uncertainty(Tabular, _Entropies):
    """Entropy of each row's label and its two parts, each (n,), in nats (divide by log 2 for bits).

    Attributes
    ----------
    total : ndarray of shape (n,)
        Entropy of the class probabilities.
    aleatoric : ndarray of shape (n,)
        What would remain if the latent functions were known.
    epistemic : ndarray of shape (n,)
        What labels nearby could teach.
    """

    __slots__ = ()

    def _columns(self) -> dict[str, Any]:
        return {"row": np.arange(len(self.total)), **self._asdict()}

    def _heading(self) -> str:
        return "entropy of each row's label, in nats"


def share_entropy(log_p: Array, aleatoric: Array, epistemic: Array) -> Uncertainty:
    """Split the entropy of predicted probabilities [n C] as the parts of the Gaussian process, by one factor per row."""
    total, own = -(np.exp(log_p) * log_p).sum(1), aleatoric + epistemic
    scale = np.divide(total, own, out=np.zeros_like(total), where=own > 0)
    return Uncertainty(total, np.where(own > 0, scale * aleatoric, total), scale * epistemic)


def split_probit(mean: Array, var: Array, log_p: Array, noise: Array) -> tuple[Array, Array]:
    """Return both parts of a probit likelihood, each [n], from marginals of f with noise s [C] or [1], and log p(y)."""
    noise = np.broadcast_to(noise, mean.shape[1:])
    with np.errstate(over="ignore"):  # of squared distances, before exp
        found = uncertainty(Latent(mean, np.maximum(var - noise, 0), log_p, 0.0), Largest(noise))
    return found.aleatoric, found.epistemic
