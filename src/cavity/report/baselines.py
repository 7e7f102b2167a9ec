"""The baseline of `cavity fit`: logistic regression, judged by folds."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from cavity.common.types import Floats
from cavity.tables.labels import read_groups
from cavity.tables.splitting import choose_folds

FOLDS = 3
LEAST_LOG = -700.0  # log-probability; a single row costs no more
MOST_WORK = 2_000_000  # rows × features × classes; beyond, it would take long


def logistic_log_loss(
    X: Floats, y: Any, weight: Floats | None, seed: int, groups: Any = None
) -> float | None:
    """Return the log loss of logistic regression on standardised features, by folds.

    None if the fits would take long.
    """
    classes, codes = np.unique(y, return_inverse=True)
    if X.size * len(classes) > MOST_WORK:
        return None

    w = np.ones(len(X))
    if weight is not None:
        w = np.asarray(weight, dtype=np.float64)
    counts = w > 0
    group = None
    if groups is not None:
        group = read_groups(groups, len(X))[counts]
    X = X[counts]
    codes = codes[counts]
    w = w[counts]
    spread = X.std(0)
    X = (X - X.mean(0)) / np.where(spread > 0, spread, 1.0)
    fold = choose_folds(X, codes, FOLDS, seed, group=group)
    loss = total = 0.0
    for i in range(FOLDS):
        held = fold == i
        if not held.any() or len(set(codes[~held])) < len(classes):
            continue

        model = LogisticRegression(max_iter=300)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X[~held], codes[~held], w[~held])
            log_p = model.predict_log_proba(X[held])

        own = log_p[np.arange(held.sum()), codes[held]]
        loss -= float(w[held] @ np.maximum(own, LEAST_LOG))
        total += float(w[held].sum())

    return loss / total if total else None
