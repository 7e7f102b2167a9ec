"""What `cavity fit` compares a model with: logistic regression by folds; for a regressor, the mean on rows held out."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from cavity.estimators.base import GPEstimator
from cavity.options import read_training
from cavity.report.scores import Array, Numbers, score_constant, score_targets
from cavity.rows.frames import Prepared
from cavity.rows.splitting import choose_folds, hold_out

FOLDS = 3
MOST_WORK = 2_000_000  # rows × features × classes of logistic regression
HELD_SHARE = 0.2
LEAST_ROWS = 10


def estimate_regression(
    model: GPEstimator, X: Array, y: Array, weight: Array | None, seed: int
) -> Numbers | None:
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
    found = score_targets(mean, std, y[held], w[held])
    mean = float(np.average(y[~held], weights=w[~held]))
    std = float(np.sqrt(np.average((y[~held] - mean) ** 2, weights=w[~held]))) or 1.0
    plain = score_constant(mean, std, y[held], w[held])
    del plain["r2"]
    return {"rows": int(held.sum()), **found, "baseline": plain}


def logistic_log_loss(X: Array, y: Any, weight: Array | None, seed: int) -> float | None:
    """Return the log loss of logistic regression on standardised features, by folds; None if it would take long."""
    classes, codes = np.unique(y, return_inverse=True)
    if X.size * len(classes) > MOST_WORK:
        return None
    w = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=np.float64)
    X, codes, w = X[w > 0], codes[w > 0], w[w > 0]
    X = (X - X.mean(0)) / np.where(X.std(0) > 0, X.std(0), 1.0)
    fold = choose_folds(X, codes, FOLDS, seed)
    loss = total = 0.0
    for i in range(FOLDS):
        held = fold == i
        if not held.any() or len(set(codes[~held])) < len(classes):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = LogisticRegression(max_iter=300).fit(X[~held], codes[~held], w[~held])
            log_p = found.predict_log_proba(X[held])
        loss -= float(w[held] @ np.maximum(log_p[np.arange(held.sum()), codes[held]], -700.0))
        total += float(w[held].sum())
    return loss / total if total else None
