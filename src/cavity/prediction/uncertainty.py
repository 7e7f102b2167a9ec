"""Split the entropy of a prediction, and measure the novelty of rows.
[docs/decisions/0014]
"""

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
    """Entropy of each row's label and its two parts, each (n,), in nats (divide by log
    2 for bits).

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


def predict_uncertainty(model: FittedModel, rows: Floats) -> Uncertainty:
    """Split the entropy of the predicted probabilities, temperature and pool included."""
    f = predict_latent(model, rows)
    log_p = apply_pool(model, f, log_probabilities(model, f), rows)
    aleatoric, epistemic = split_entropy(model, f)
    # as the parts of the Gaussian process, by one factor per row
    total = -(np.exp(log_p) * log_p).sum(1)
    own = aleatoric + epistemic
    scale = np.divide(total, own, out=np.zeros_like(total), where=own > 0)
    return Uncertainty(
        total, np.where(own > 0, scale * aleatoric, total), scale * epistemic
    )


def split_entropy(model: FittedModel, f: Marginals | Joint) -> tuple[Floats, Floats]:
    """Return both parts of the Gaussian process: noise on f is aleatoric, all other
    variance of f, also the residual, epistemic.
    """
    host = model.xp.host
    if isinstance(f, Joint):  # the likelihood has its own noise
        import torch

        from cavity.engine.likelihoods.quadrature.correlated import softmax_uncertainty

        parts = [
            softmax_uncertainty(*(torch.as_tensor(host(x)) for x in (f.mean, f.cov)))
        ]
    else:
        noise = model.noises
        outcome = model.outcome
        if hasattr(outcome, "to"):  # a likelihood of the user's own
            outcome = copy.deepcopy(outcome).to("cpu")
        with np.errstate(over="ignore"):  # of squared distances, before exp
            pieces = (map(host, piece) for piece in split_marginals(model, f))
            parts = [
                ask(outcome.uncertainty, m, np.maximum(v - noise, 0), noise)
                for m, v in pieces
            ]
    _, aleatoric, epistemic = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    return aleatoric, epistemic


def predict_novelty(
    model: FittedModel, rows: Floats, novelty: Novelty
) -> tuple[Floats]:
    """Return how unlike the training rows each row is, [n]."""
    return (novelty.at(model.xp.host(predict_latent(model, rows).var)),)
