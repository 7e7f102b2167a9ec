"""q at the inducing points, from the arrays of a model. Does not load torch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cavity.common.types import Floats
from cavity.prediction.model import FittedModel


class InducingValues(NamedTuple):
    """Posterior of the latent functions at the inducing points, q(u) = N(mean, cov).

    Attributes
    ----------
    mean : ndarray of shape (C, M)
        Means; C latent functions, one per class or a single one for two classes. For a
        regressor the shape is (M,).
    covariance : ndarray of shape (C, M, M)
        Covariances of the values of one latent function. For a regressor the shape is
        (M, M).
    """

    mean: Floats
    covariance: Floats


def find_inducing_values(model: FittedModel) -> InducingValues:
    """Return q(u) of each latent function, u = L w.                   [METHOD 2, 3]

    mean  L μ      covariance  L Λ⁻¹ Lᵀ
    """
    xp = model.xp
    C = model.n_latent
    L = xp.host(model.prior_lower)
    M = L.shape[-1]
    mean = xp.host(model.mean).reshape(C, M)
    root = invert_lower(model)
    scaled = L @ root  # [C M M], or [C M CM] if classes are coupled
    u = (L @ mean[..., None])[..., 0]
    return InducingValues(u, scaled @ scaled.swapaxes(1, 2))


def invert_lower(model: FittedModel) -> Floats:
    """Return R with R Rᵀ = cov(w_c), [C M M]; [C M CM] if q couples the classes."""
    xp = model.xp
    lower = model.lower
    eye = xp.like(np.eye(lower.shape[-1])[None], lower)
    half = xp.host(xp.solve_lower(lower, eye + 0 * lower)).swapaxes(1, 2)
    if not model.coupled:
        return np.asarray(half)

    return np.asarray(half[0].reshape(model.n_latent, -1, half.shape[-1]))
