"""Joint moments of the latent functions at rows.   [METHOD 8]

Does not load torch.
"""

from __future__ import annotations

import numpy as np

from cavity.common.types import Floats
from cavity.prediction.inducing_values import invert_lower
from cavity.prediction.model import FittedModel
from cavity.prediction.predict import as_rows


def predict_joint_moments(
    model: FittedModel, rows: Floats, noise: bool
) -> tuple[Floats, Floats]:
    """Return the mean [n C] of f, and the covariance of rows in each function, [n n C].

    mean  μ·a      covariance  k(X, X) − AᵀA + AᵀΣA, and s on the diagonal with `noise`
    """
    X = as_rows(model, rows)
    xp = model.xp
    C = model.n_latent
    projection, _ = model.project(X)
    a = xp.host(projection)  # [C M n] or [1 M n]
    mean = xp.host(model.mean).reshape(C, 1, -1) @ a
    half = invert_lower(model).swapaxes(1, 2) @ a
    cov = xp.host(model.among(X)) - a.swapaxes(1, 2) @ a + half.swapaxes(1, 2) @ half
    if noise:
        cov = cov + model.noises[:, None, None] * np.eye(len(rows))
    return mean[:, 0].T, cov.transpose(1, 2, 0)
