"""What users would choose instead: one function per peer, with settings that its documentation recommends.

Each takes a split with standardized features, a seed and a device. Peers that need a validation set hold out a tenth of the
training rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.early_stopping import Fitted, hold_out
from experiments.sets import Array, Split

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


def fit_sklearn_gp(data: Split, seed: int, device: str) -> Fitted:
    """Laplace, one class against the rest, hyper-parameters learnt.

    One lengthscale: on wine and new_thyroid one per feature had a higher marginal likelihood and a worse NLL.
    """
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    kernel = ConstantKernel(1.0, (1e-3, 1e5)) * RBF(np.sqrt(data.X.shape[1]), (1e-2, 1e4))
    return _fit(GaussianProcessClassifier(kernel, random_state=seed), data, "RBF, one against the rest")


def fit_lightgbm(data: Split, seed: int, device: str) -> Fitted:
    """Boosted trees; early stopping after fifty rounds without a smaller validation loss."""
    import lightgbm as lgb

    train, held = hold_out(data, seed)
    model = lgb.LGBMClassifier(
        n_estimators=2000, learning_rate=0.05, random_state=seed, n_jobs=1, verbose=-1, min_child_samples=10
    )
    stop = lgb.early_stopping(50, verbose=False)
    return _fit(
        model,
        train,
        lambda: f"{model.best_iteration_} rounds",
        eval_set=[(held.X, held.y)],
        eval_metric="multi_logloss",
        callbacks=[stop],
    )


def fit_hist_boosting(data: Split, seed: int, device: str) -> Fitted:
    """scikit-learn's boosted trees with early stopping."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    train, held = hold_out(data, seed)
    model = HistGradientBoostingClassifier(
        max_iter=1000, learning_rate=0.05, early_stopping=True, n_iter_no_change=50, random_state=seed
    )
    return _fit(model, train, lambda: f"{model.n_iter_} rounds", X_val=held.X, y_val=held.y)


def fit_gpytorch(data: Split, seed: int, device: str) -> Fitted:
    """SVGP with softmax, trained by Adam with early stopping."""
    from experiments import peer_gpytorch

    return peer_gpytorch.fit_gpytorch(data, seed, device)


def fit_gpflow(data: Split, seed: int, device: str) -> Fitted:
    """SVGP with robust-max, trained in the same way."""
    from experiments import peer_gpflow

    return peer_gpflow.fit_gpflow(data, seed, device)


FITS: dict[str, Callable[[Split, int, str], Fitted]] = {
    "sklearn_gp": fit_sklearn_gp,
    "gpytorch": fit_gpytorch,
    "gpflow": fit_gpflow,
    "logistic": fit_logistic,
    "lightgbm": fit_lightgbm,
    "hist_boosting": fit_hist_boosting,
}
