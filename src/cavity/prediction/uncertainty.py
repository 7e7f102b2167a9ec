"""Split the entropy of a prediction, and measure the novelty of rows."""

from __future__ import annotations

import copy

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.common.linalg import concatenate
from cavity.inference.posterior import Normal
from cavity.likelihoods.quadrature.correlated import softmax_uncertainty
from cavity.prediction.entropy import Uncertainty as Uncertainty
from cavity.prediction.entropy import share_entropy
from cavity.prediction.model import (
    FittedModel,
    Joint,
    apply_pool,
    as_array,
    as_tensor,
    log_probabilities,
    predict_latent,
    predict_moments,
    split_rows,
)
from cavity.prediction.novelty import Novelty

Array = NDArray[np.float64]


@torch.no_grad()
def predict_uncertainty(model: FittedModel, rows: Array) -> Uncertainty:
    """Split the entropy of the predicted probabilities, temperature and pool included."""
    f = predict_latent(model, as_tensor(rows))
    log_p = apply_pool(model, f, log_probabilities(model, f).numpy(), rows)
    return share_entropy(log_p, *split_entropy(model, f))


def split_entropy(model: FittedModel, f: Normal | Joint) -> tuple[Array, Array]:
    """Return both parts of the Gaussian process: noise on f is aleatoric, all other variance of f, also the residual, epistemic."""
    if isinstance(f, Joint):  # the likelihood has its own noise
        parts = [softmax_uncertainty(f.mean.cpu(), f.cov.cpu())]
    else:
        noise = model.prior.noise.double().cpu().expand(f.mean.shape[1])
        f = Normal(f.mean.cpu(), f.var.cpu())
        likelihood = copy.deepcopy(model.likelihood).to(torch.device("cpu"))
        parts = [
            likelihood.uncertainty(mean, (var - noise).clamp_min(0), noise) for mean, var in split_rows(f)
        ]
    _, aleatoric, epistemic = map(as_array, concatenate(parts))
    return aleatoric, epistemic


def predict_novelty(model: FittedModel, rows: Array, novelty: Novelty) -> tuple[Array]:
    """Return how unlike the training rows each row is, [n]."""
    return (novelty.at(predict_moments(model, rows)[1]),)
