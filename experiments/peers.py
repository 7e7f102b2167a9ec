"""What users would choose instead: one function per peer, with settings that its documentation recommends.

Each takes a split with standardized features, a seed and a device. Peers that need a validation set hold out a tenth of the
training rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from experiments import table_data, table_fits
from experiments.early_stopping import Fitted, hold_out
from experiments.sets import Array, Split

TUNED_TRIALS, TUNED_SECONDS = 20, 90.0  # of the random search for LightGBM
PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)  # C of logistic regression
MOST_CROSS_VALIDATED = 10_000  # rows up to which C is chosen by cross-validation


def _log(P: Any) -> Array:
    return np.log(np.maximum(np.asarray(P, dtype=np.float64), np.finfo(np.float64).tiny))


def _fit(model: Any, data: Split, note: str | Callable[[], str], **arguments: Any) -> Fitted:
    """Fit any model with fit and predict_proba."""
    begin = time.perf_counter()
    model.fit(data.X, data.y, **arguments)
    seconds = time.perf_counter() - begin
    text = note if isinstance(note, str) else note()
    return Fitted(lambda X: _log(model.predict_proba(X)), model.classes_, model, seconds, text)


def fit_logistic(data: Split, seed: int, device: str) -> Fitted:
    """Logistic regression; C by cross-validated NLL if that is cheap, else the default."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    model = LogisticRegression(max_iter=2000)
    if len(data.y) > MOST_CROSS_VALIDATED or np.unique(data.y, return_counts=True)[1].min() < 5:
        return _fit(model, data, "C = 1")
    search = GridSearchCV(model, {"C": PENALTIES}, scoring="neg_log_loss", cv=5)
    return _fit(search, data, "C by cross-validation")


def fit_lightgbm_tuned(data: Split, seed: int, device: str) -> Fitted:
    """Boosted trees by random search: at most 20 settings or 90 seconds, each with early stopping; the best one is kept."""
    import lightgbm as lgb

    train, held = hold_out(data, seed)
    rng, begin = np.random.default_rng(seed), time.perf_counter()
    best: tuple[float, Any] = (np.inf, None)
    trials = 0
    while trials < TUNED_TRIALS and (trials == 0 or time.perf_counter() - begin < TUNED_SECONDS):
        model = lgb.LGBMClassifier(
            n_estimators=2000,
            learning_rate=10 ** rng.uniform(-2, -0.7),
            num_leaves=int(2 ** rng.uniform(2, 7)),
            min_child_samples=int(2 ** rng.uniform(0, 6)),
            subsample=rng.uniform(0.5, 1.0),
            subsample_freq=1,
            colsample_bytree=rng.uniform(0.4, 1.0),
            reg_lambda=10 ** rng.uniform(-3, 1),
            random_state=seed,
            n_jobs=1,
            verbose=-1,
        )
        stop = lgb.early_stopping(50, verbose=False)
        model.fit(train.X, train.y, eval_set=[(held.X, held.y)], callbacks=[stop])
        best = min(best, (next(iter(model.best_score_["valid_0"].values())), model), key=lambda pair: pair[0])
        trials += 1
    found = best[1]
    seconds = time.perf_counter() - begin
    return Fitted(
        lambda X: _log(found.predict_proba(X)), found.classes_, found, seconds, f"{trials} settings"
    )


def fit_gpflow(data: Split, seed: int, device: str) -> Fitted:
    """SVGP with robust-max, trained in the same way."""
    from experiments import peer_gpflow

    return peer_gpflow.fit_gpflow(data, seed, device)


def fit_as_table(name: str, data: Split, seed: int, device: str) -> Fitted:
    """A peer of `experiments.table_fits`, with the same settings."""
    import pandas as pd

    classes, y = np.unique(data.y, return_inverse=True)
    order = np.random.default_rng([seed, 2]).permutation(len(y))
    table = table_data.Split(pd.DataFrame(data.X).add_prefix("x"), y, order, order[:0])
    columns, fit = table_fits.PEERS[name]
    begin = time.perf_counter()
    model = fit(table._replace(X=columns(table)))
    seconds = time.perf_counter() - begin
    known = classes[np.asarray(model.classes_, int)]

    def log_proba(X: Array) -> Array:
        return _log(model.predict_proba(pd.DataFrame(X).add_prefix("x")))

    return Fitted(log_proba, known, model, seconds, "as in tables")


FITS: dict[str, Callable[[Split, int, str], Fitted]] = {
    "gpflow": fit_gpflow,
    "logistic": fit_logistic,
    "lightgbm": partial(fit_as_table, "lgbm"),
    "hist_boosting": partial(fit_as_table, "hgb"),
    "lightgbm_tuned": fit_lightgbm_tuned,
    "catboost": partial(fit_as_table, "cat"),
    "realmlp": partial(fit_as_table, "realmlp"),
}
