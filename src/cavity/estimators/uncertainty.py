"""What a prediction does not know, and which labels would tell it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.estimators.fitted import Fitted, Joint, numpy, pieces
from cavity.estimators.values import whole
from cavity.posterior import Normal
from cavity.quadrature import softmax_uncertainty

Array = NDArray[np.float64]


class Uncertainty(NamedTuple):
    """Entropy of each row's label and its two parts, (n,) each, in nats (divide by log 2 for bits)."""

    total: Array
    aleatoric: Array
    epistemic: Array


@torch.no_grad()
def of(model: Fitted, f: Normal | Joint) -> Uncertainty:
    """The noise on f is the label's own; all other variance of f, the residual too, is not knowing f."""
    if isinstance(f, Joint):  # its likelihood has its noise in itself
        return Uncertainty(*(numpy(t) for t in softmax_uncertainty(f.mean.cpu(), f.cov.cpu())))
    noise = model.prior.noise.double().cpu().expand(f.mean.shape[1])
    f = Normal(f.mean.cpu(), f.var.cpu())
    parts = [model.factor.uncertainty(mean, (var - noise).clamp_min(0), noise) for mean, var in pieces(f)]
    total, aleatoric, epistemic = (numpy(torch.cat(column)) for column in zip(*parts, strict=True))
    return Uncertainty(total, aleatoric, epistemic)


def ranked(uncertainty: Callable[[], Uncertainty], n: Any) -> NDArray[np.int64]:
    """Row numbers, the most epistemic first; ties in their order."""
    most = None if n is None else whole("n", n, 1)
    order = np.argsort(-uncertainty().epistemic, kind="stable")
    return np.asarray(order[:most], dtype=np.int64)
