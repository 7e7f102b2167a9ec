"""What users would pick instead: each peer is one function, with settings that its own documentation recommends.

Each takes a split whose columns are standardised, and a seed. What needs a validation set takes a tenth of the training rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.experiments.sets import Array, Split

RATES = (0.01, 0.1)
PATIENCE = 20  # judgements without a smaller validation NLL
LEAST = 1e-4  # an improvement that counts
EVERY, OFTEN = (
    10,
    50,
)  # steps between judgements on full batches; on mini-batches a pass, but no more than fifty
MOST_STEPS = 20_000
SAMPLES, JUDGE_SAMPLES = 256, 64  # of the latent values, where probabilities are averaged: test, validation
CHOICES = (0.01, 0.1, 1.0, 10.0, 100.0)  # of logistic regression's C, by cross-validation up to so many rows:
CROSS_VALIDATED = 10_000
MEDIAN_ROWS = 1000


class Peer(NamedTuple):
    """A fitted model."""

    log_proba: Callable[[Array], Array]
    classes: NDArray[Any]
    model: Any  # what is pickled to learn its size
    seconds: float
    note: str = ""
    curve: tuple[tuple[float, float], ...] = ()  # seconds, test NLL (GPyTorch: validation NLL)
    M: int | None = None


@dataclass
class Trained:
    """The best state of one run of Adam, by validation, and how it came about."""

    rate: float
    model: Any  # has M and log_proba
    judged: float = float("inf")  # the lowest validation NLL
    seconds: float = 0.0  # until that state, judging not counted
    steps: int = 0
    curve: list[tuple[float, float]] = field(default_factory=list)  # seconds, validation NLL


def _floored(P: Any) -> Array:
    return np.log(np.maximum(np.asarray(P, dtype=np.float64), np.finfo(np.float64).tiny))


def _scikit(model: Any, data: Split, note: str) -> Peer:
    """Anything with fit and predict_proba."""
    begin = time.perf_counter()
    model.fit(data.X, data.y)
    seconds = time.perf_counter() - begin
    return Peer(lambda X: _floored(model.predict_proba(X)), model.classes_, model, seconds, note)


def validation(data: Split, seed: int, share: float = 0.1) -> tuple[Split, Split]:
    """Training rows without, and only, a share of every class."""
    rng = np.random.default_rng([seed, 2])
    held = np.zeros(len(data.y), dtype=bool)
    for label in np.unique(data.y):
        rows = np.flatnonzero(data.y == label)
        held[rng.permutation(rows)[: min(max(1, round(share * len(rows))), len(rows) - 1)]] = True
    return data._replace(X=data.X[~held], y=data.y[~held]), data._replace(X=data.X[held], y=data.y[held])


def median_distance(X: Array, rng: np.random.Generator) -> float:
    """The median distance of rows, a better start than the library's 0.69 where columns are many."""
    some = X[rng.permutation(len(X))[:MEDIAN_ROWS]]
    squares = (some**2).sum(1)
    gap = squares[:, None] + squares[None] - 2 * some @ some.T
    return float(np.sqrt(np.median(gap[np.triu_indices(len(some), 1)]).clip(1e-6)))


def logistic(data: Split, seed: int, device: str) -> Peer:
    """Logistic regression; its penalty by cross-validated NLL where that is cheap, else the default."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    usual = LogisticRegression(max_iter=2000)
    if len(data.y) > CROSS_VALIDATED or np.unique(data.y, return_counts=True)[1].min() < 5:
        return _scikit(usual, data, "C = 1")
    return _scikit(
        GridSearchCV(usual, {"C": CHOICES}, scoring="neg_log_loss", cv=5), data, "C by cross-validation"
    )


def sklearn_gp(data: Split, seed: int, device: str) -> Peer:
    """Laplace, one class against the rest, hyper-parameters learnt.

    One lengthscale: on wine and new_thyroid one for every column had the higher marginal likelihood and the worse NLL.
    """
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    kernel = ConstantKernel(1.0, (1e-3, 1e5)) * RBF(np.sqrt(data.X.shape[1]), (1e-2, 1e4))
    return _scikit(GaussianProcessClassifier(kernel, random_state=seed), data, "RBF, one against the rest")


def lightgbm(data: Split, seed: int, device: str) -> Peer:
    """Boosted trees, stopped when the validation loss has not fallen for fifty rounds."""
    import lightgbm as lgb

    train, held = validation(data, seed)
    model = lgb.LGBMClassifier(
        n_estimators=2000, learning_rate=0.05, random_state=seed, n_jobs=1, verbose=-1, min_child_samples=10
    )
    begin = time.perf_counter()
    stop: list[Callable[..., Any]] = [lgb.early_stopping(50, verbose=False)]
    model.fit(train.X, train.y, eval_set=[(held.X, held.y)], eval_metric="multi_logloss", callbacks=stop)
    seconds = time.perf_counter() - begin
    note = f"{model.best_iteration_} rounds"
    return Peer(lambda X: _floored(model.predict_proba(X)), model.classes_, model, seconds, note)


def hist_boosting(data: Split, seed: int, device: str) -> Peer:
    """scikit-learn's boosted trees with early stopping."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    train, held = validation(data, seed)
    model = HistGradientBoostingClassifier(
        max_iter=1000, learning_rate=0.05, early_stopping=True, n_iter_no_change=50, random_state=seed
    )
    begin = time.perf_counter()
    model.fit(train.X, train.y, X_val=held.X, y_val=held.y)
    seconds = time.perf_counter() - begin
    return Peer(
        lambda X: _floored(model.predict_proba(X)), model.classes_, model, seconds, f"{model.n_iter_} rounds"
    )


def gpytorch(data: Split, seed: int, device: str) -> Peer:
    """SVGP with softmax: Adam, the better of two rates by validation, each until the validation NLL stops falling.

    M and batch size are those of our default. Seconds are those of the better run alone.
    """
    import torch

    from cavity.experiments.svgp import train

    found = "cuda" if torch.cuda.is_available() else "cpu"
    where = found if device == "auto" else device
    return _better([train(data, seed, rate, where) for rate in RATES], data)


def gpflow(data: Split, seed: int, device: str) -> Peer:
    """SVGP with robust-max, trained in the same way; TensorFlow wants an environment of its own."""
    from cavity.experiments.robust_max import train

    return _better([train(data, seed, rate) for rate in RATES], data)


def _better(runs: list[Trained], data: Split) -> Peer:
    """The run with the lower validation NLL."""
    best = min(runs, key=lambda run: run.judged)
    told = ", ".join(f"{run.rate:g}: {run.judged:.4f} after {run.steps} steps" for run in runs)
    note = f"rate {best.rate:g} (validation NLL {told})"
    model = best.model
    return Peer(model.log_proba, np.unique(data.y), model, best.seconds, note, tuple(best.curve), model.M)


PEERS: dict[str, Callable[[Split, int, str], Peer]] = {
    "sklearn_gp": sklearn_gp,
    "gpytorch": gpytorch,
    "gpflow": gpflow,
    "logistic": logistic,
    "lightgbm": lightgbm,
    "hist_boosting": hist_boosting,
}
