"""The baseline of `cavity fit`: logistic regression, judged by folds."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from cavity.common.types import Flags, Floats
from cavity.tables.labels import read_groups
from cavity.tables.splitting import choose_folds

FOLDS = 3
LEAST_LOG = -700.0  # log-probability; a single row costs no more
MOST_WORK = 2_000_000  # rows × features × classes; beyond, a sample of rows is used
LEAST_ROWS = 300  # of the sample


def count_rows(n_rows: int, n_features: int, n_classes: int) -> int:
    """Return how many rows `logistic_log_loss` uses."""
    most = MOST_WORK // max(1, n_features * n_classes)
    return min(n_rows, max(most, LEAST_ROWS))


def logistic_log_loss(
    X: Floats,
    y: Any,
    weight: Floats | None,
    seed: int,
    groups: Any = None,
    *,
    is_over: Callable[[], bool] = lambda: False,
) -> float | None:
    """Return the log loss of logistic regression on standardised features, by folds.

    Of a large table, a random sample of rows is used. No fold begins when time
    `is_over`. None: no fold was judged.
    """
    if is_over():
        return None

    n, D = X.shape
    n = count_rows(n, D, len(np.unique(y)))
    if n < len(X):
        chosen = np.sort(np.random.default_rng(seed).choice(len(X), n, replace=False))
        X = X[chosen]
        y = np.asarray(y)[chosen]
        if weight is not None:
            weight = np.asarray(weight)[chosen]
        if groups is not None:
            groups = np.asarray(groups)[chosen]

    w = np.ones(len(X))
    if weight is not None:
        w = np.asarray(weight, dtype=np.float64)
    classes, codes = np.unique(y, return_inverse=True)
    group = None if groups is None else read_groups(groups, len(X))
    counts = w > 0
    if not counts.all():
        X = X[counts]
        codes = codes[counts]
        w = w[counts]
        group = None if group is None else group[counts]
    spread = X.std(0)
    X = (X - X.mean(0)) / np.where(spread > 0, spread, 1.0)
    fold = choose_folds(X, codes, FOLDS, seed, group=group)
    loss = total = 0.0
    for i in range(FOLDS):
        if is_over():
            break

        held = fold == i
        if held.any() and len(set(codes[~held])) == len(classes):
            loss += _judge_fold(X, codes, w, held)
            total += float(w[held].sum())

    return loss / total if total else None


def _judge_fold(X: Floats, codes: Any, weight: Floats, held: Flags) -> float:
    """Return the weighted sum of losses of held rows, by a fit to the others."""
    model = LogisticRegression(max_iter=300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[~held], codes[~held], weight[~held])
        log_p = model.predict_log_proba(X[held])

    own = log_p[np.arange(held.sum()), codes[held]]
    return -float(weight[held] @ np.maximum(own, LEAST_LOG))
