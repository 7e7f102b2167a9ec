"""What `cavity fit` compares a model with: logistic regression by folds."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from cavity.common.types import Floats
from cavity.tables.labels import read_groups
from cavity.tables.splitting import choose_folds

FOLDS = 3
MOST_WORK = 2_000_000  # rows × features × classes of logistic regression


def logistic_log_loss(
    X: Floats, y: Any, weight: Floats | None, seed: int, groups: Any = None
) -> float | None:
    """Return the log loss of logistic regression on standardised features, by folds;
    None if it would take long.
    """
    classes, codes = np.unique(y, return_inverse=True)
    if X.size * len(classes) > MOST_WORK:
        return None
    if weight is None:
        w = np.ones(len(X))
    else:
        w = np.asarray(weight, dtype=np.float64)
    group = None
    if groups is not None:
        group = read_groups(groups, len(X))[w > 0]
    X = X[w > 0]
    codes = codes[w > 0]
    w = w[w > 0]
    X = (X - X.mean(0)) / np.where(X.std(0) > 0, X.std(0), 1.0)
    fold = choose_folds(X, codes, FOLDS, seed, group=group)
    loss = total = 0.0
    for i in range(FOLDS):
        held = fold == i
        if not held.any() or len(set(codes[~held])) < len(classes):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = LogisticRegression(max_iter=300).fit(
                X[~held], codes[~held], w[~held]
            )
            log_p = found.predict_log_proba(X[held])
        loss -= float(
            w[held] @ np.maximum(log_p[np.arange(held.sum()), codes[held]], -700.0)
        )
        total += float(w[held].sum())
    return loss / total if total else None
