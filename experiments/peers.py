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


def fit_xgboost(data: Split, seed: int, device: str) -> Fitted:
    """Boosted trees; early stopping after fifty rounds without a smaller validation loss."""
    import xgboost as xgb

    train, held = hold_out(data, seed)
    classes, place = np.unique(train.y, return_inverse=True)
    model = xgb.XGBClassifier(
        n_estimators=2000, learning_rate=0.05, early_stopping_rounds=50, random_state=seed, n_jobs=1
    )
    begin = time.perf_counter()
    known = np.isin(held.y, classes)
    model.fit(
        train.X, place, eval_set=[(held.X[known], np.searchsorted(classes, held.y[known]))], verbose=False
    )
    seconds = time.perf_counter() - begin
    return Fitted(lambda X: _log(model.predict_proba(X)), classes, model, seconds, "early stopping")


def fit_catboost(data: Split, seed: int, device: str) -> Fitted:
    """Boosted trees with CatBoost's defaults; early stopping after fifty rounds."""
    from catboost import CatBoostClassifier

    train, held = hold_out(data, seed)
    model = CatBoostClassifier(
        early_stopping_rounds=50, random_seed=seed, thread_count=1, verbose=0, allow_writing_files=False
    )
    begin = time.perf_counter()
    classes, place = np.unique(train.y, return_inverse=True)
    known = np.isin(held.y, classes)
    model.fit(train.X, place, eval_set=(held.X[known], np.searchsorted(classes, held.y[known])))
    seconds = time.perf_counter() - begin
    return Fitted(lambda X: _log(model.predict_proba(X)), classes, model, seconds, "early stopping")


def fit_extra_trees(data: Split, seed: int, device: str) -> Fitted:
    """500 extremely randomised trees."""
    from sklearn.ensemble import ExtraTreesClassifier

    return _fit_smoothed(ExtraTreesClassifier(500, random_state=seed), data, "500 trees")


def _fit_smoothed(model: Any, data: Split, note: str) -> Fitted:
    """Fit a model whose probabilities may be 0: half a row is added to each class of 500."""
    fitted = _fit(model, data, note)

    def log_proba(X: Array) -> Array:
        P = np.exp(fitted.log_proba(X)) + 1e-3
        return np.asarray(np.log(P / P.sum(1, keepdims=True)))

    return fitted._replace(log_proba=log_proba)


def fit_svm(data: Split, seed: int, device: str) -> Fitted:
    """RBF support vector machine, C and gamma by cross-validation, calibrated by Platt's sigmoid on five folds."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    begin, D = time.perf_counter(), data.X.shape[1]
    folds = int(min(5, np.unique(data.y, return_counts=True)[1].min()))
    grid = {"C": [0.3, 1.0, 3.0, 10.0, 30.0, 100.0], "gamma": [0.1 / D, 0.3 / D, 1.0 / D, 3.0 / D]}
    search = GridSearchCV(SVC(), grid, cv=max(2, folds)).fit(data.X, data.y)
    fitted = _fit(
        CalibratedClassifierCV(search.best_estimator_, cv=max(2, folds)), data, str(search.best_params_)
    )
    return fitted._replace(seconds=time.perf_counter() - begin)


def fit_realmlp(data: Split, seed: int, device: str) -> Fitted:
    """RealMLP with the tuned defaults of pytabkit; a tenth of the rows stops it early."""
    from pytabkit import RealMLP_TD_Classifier

    model = RealMLP_TD_Classifier(
        device=device, random_state=seed, n_cv=1, val_metric_name="cross_entropy", use_ls=False, n_threads=1
    )
    return _fit(model, data._replace(X=data.X.astype(np.float32)), "tuned defaults")


def fit_xrfm(data: Split, seed: int, device: str) -> Fitted:
    """Recursive feature machine; a tenth of the rows chooses its iteration."""
    import torch
    from xrfm import xRFM

    train, held = hold_out(data, seed)
    classes, place = np.unique(train.y, return_inverse=True)
    known = np.isin(held.y, classes)
    model = xRFM(device=torch.device(device), tuning_metric="brier", random_state=seed)
    begin = time.perf_counter()

    def to(rows: Array) -> Any:
        return torch.tensor(np.asarray(rows, dtype=np.float32), device=device)

    model.fit(
        to(train.X),
        torch.tensor(place, device=device),
        to(held.X[known]),
        torch.tensor(np.searchsorted(classes, held.y[known]), device=device),
    )
    seconds = time.perf_counter() - begin

    def log_proba(X: Array) -> Array:
        P = np.clip(np.asarray(model.predict_proba(to(X)), dtype=np.float64), 1e-3, None)
        return np.asarray(np.log(P / P.sum(1, keepdims=True)))

    return Fitted(log_proba, classes, None, seconds, "defaults")


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
    "lightgbm_tuned": fit_lightgbm_tuned,
    "xgboost": fit_xgboost,
    "catboost": fit_catboost,
    "extra_trees": fit_extra_trees,
    "svm": fit_svm,
    "realmlp": fit_realmlp,
    "xrfm": fit_xrfm,
}
