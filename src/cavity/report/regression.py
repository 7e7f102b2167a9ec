"""How good a regressor is: an estimate from rows held out, and the scores of a baseline."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import clone

from cavity.options import read_training
from cavity.report.scores import Array, Numbers, score_constant, score_targets
from cavity.rows.frames import Prepared
from cavity.rows.splitting import hold_out

SCORES = {
    "rmse": "Root mean squared error",
    "mae": "Mean absolute error",
    "r2": "Share of the variance explained (R²)",
    "nlpd": "Negative log density, nats per row",
    "coverage": "Rows within their 95 % interval",
}
HELD_SHARE = 0.2
LEAST_ROWS = 10


def estimate_regression(model: Any, X: Array, y: Array, weight: Array | None, seed: int) -> Numbers | None:
    """Fit once more without a fifth of the rows, and score their predictions; None for a handful of rows or with a time limit."""
    w = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
    held = hold_out(X, None, HELD_SHARE, seed, weight=w)
    if read_training(model.training).max_seconds is not None or (w > 0).sum() < LEAST_ROWS or not held.any():
        return None
    again = clone(model).set_params(training__checkpoint=None, training__resume=False, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again.fit(Prepared(X[~held], model.preparation_), y[~held], sample_weight=w[~held])
    mean, std = again.predict(Prepared(X[held]), return_std=True)
    return {
        "rows": int(held.sum()),
        **score_targets(mean, std, y[held], w[held]),
        "baseline": score_mean(y[~held], w[~held], y[held], w[held]),
    }


def score_mean(y: Array, weight: Array, new: Array, new_weight: Array) -> Numbers:
    """Score the normal distribution of the targets y, without features, at new targets."""
    mean = float(np.average(y, weights=weight))
    std = float(np.sqrt(np.average((y - mean) ** 2, weights=weight))) or 1.0
    found = score_constant(mean, std, new, new_weight)
    return {name: found[name] for name in ("rmse", "mae", "nlpd", "coverage")}
