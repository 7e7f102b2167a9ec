"""Split the entropy of predictions, and measure the novelty of rows.   [decision 14]"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from cavity.common.tabular import Tabular
from cavity.common.types import Floats
from cavity.engine.likelihoods.quadrature.information import EntropyParts
from cavity.prediction.latent import Joint, Marginals
from cavity.prediction.model import FittedModel
from cavity.prediction.novelty import Novelty
from cavity.prediction.predict import (
    apply_pool,
    ask,
    log_probabilities,
    predict_latent,
    split_marginals,
)


class Uncertainty(Tabular, EntropyParts):
    """Entropy of each prediction and its two parts, in nats.

    Divide by log 2 for bits.

    Attributes
    ----------
    total : ndarray of shape (n_samples,)
        Entropy of the class probabilities.
    aleatoric : ndarray of shape (n_samples,)
        Entropy that would remain if the latent functions were known.
    epistemic : ndarray of shape (n_samples,)
        Entropy that labels of similar rows would remove.
    """

    __slots__ = ()

    def _columns(self) -> dict[str, Any]:
        return {"row": np.arange(len(self.total)), **self._asdict()}

    def _heading(self) -> str:
        return "entropy of each row's label, in nats"


def predict_uncertainty(model: FittedModel, rows: Floats) -> Uncertainty:
    """Split the entropy of the predicted probabilities, temperature and pool included.

    The parts of the Gaussian process are scaled by one factor per row.
    """
    f = predict_latent(model, rows)
    log_p = apply_pool(model, f, log_probabilities(model, f), rows)
    total = -(np.exp(log_p) * log_p).sum(1)

    aleatoric, epistemic = split_entropy(model, f)
    own = aleatoric + epistemic
    scale = np.divide(total, own, out=np.zeros_like(total), where=own > 0)
    aleatoric = np.where(own > 0, scale * aleatoric, total)
    return Uncertainty(total, aleatoric, scale * epistemic)


def split_entropy(model: FittedModel, f: Marginals | Joint) -> tuple[Floats, Floats]:
    """Return aleatoric and epistemic entropy of the Gaussian process, each [n].

    Noise on f is aleatoric; the other variance of f, residual included, is epistemic.
    """
    host = model.xp.host
    if isinstance(f, Joint):  # the likelihood has its own noise
        import torch

        from cavity.engine.likelihoods.quadrature.correlated import softmax_uncertainty

        mean = torch.as_tensor(host(f.mean))
        cov = torch.as_tensor(host(f.cov))
        parts = [softmax_uncertainty(mean, cov)]
    else:
        noise = model.noises
        outcome = model.outcome
        if hasattr(outcome, "to"):  # a user's likelihood
            outcome = copy.deepcopy(outcome).to("cpu")
        with np.errstate(over="ignore"):  # squared distances may overflow before exp
            parts = []
            for mean, var in split_marginals(model, f):
                known = np.maximum(host(var) - noise, 0)
                parts.append(ask(outcome.uncertainty, host(mean), known, noise))

    aleatoric = np.concatenate([part[1] for part in parts])
    epistemic = np.concatenate([part[2] for part in parts])
    return aleatoric, epistemic


def predict_novelty(
    model: FittedModel, rows: Floats, novelty: Novelty
) -> tuple[Floats]:
    """Return the novelty of each row, [n]."""
    var = model.xp.host(predict_latent(model, rows).var)
    return (novelty.at(var),)
