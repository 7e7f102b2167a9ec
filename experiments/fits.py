"""Run a job: fit, score, and return its rows."""

from __future__ import annotations

import importlib
import json
import math
import pickle
import resource
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.special import logsumexp

from cavity.kernels import RBF
from experiments import sets
from experiments.curves import ScoreCurve
from experiments.early_stopping import Fitted
from experiments.jobs import Context, Job, Row, identify, stamp
from experiments.methods import ALL_PEERS, default_sizes, make_classifier
from experiments.peers import FITS
from experiments.scores import chance_calibration_error, score_predictions
from experiments.toy import make_grid, pack

PREDICT_SECONDS = 0.5  # shortest time over which the rate of predictions is measured


def run_job(job: Job, context: Context) -> list[Row]:
    """Fit one job in this process and return its rows."""
    torch.set_num_threads(context.threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return KINDS[job.kind](job, context)


def _classifier(job: Job, context: Context, **further: Any) -> Any:
    size = {} if job.n_inducing is None else {"n_inducing": job.n_inducing}
    common = {"device": context.device, "random_state": job.split}
    return make_classifier(job.method, **common | size | job.options | further)


def _outcome(clf: Any, seconds: float, data: sets.Split) -> Row:
    """Scores of a fitted classifier, and facts about the fit."""
    return {
        **score_predictions(clf.predict_log_proba(data.X_test), clf.classes_, data.y_test),
        "M": clf.inducing_points_.shape[1],
        "seconds": seconds,
        "epochs": clf.n_epochs_,
        "repairs": sum(row["repairs"] for row in clf.history_),
        "epsilon": getattr(clf, "epsilon_", math.nan),
        "log_evidence": float(clf.log_marginal_likelihood_),
    }


def _load(job: Job, context: Context) -> sets.Split:
    data = sets.split(job.dataset, job.split, context.data_home)
    return sets.redraw_labels(data, job.flip, job.split) if job.flip else data


def _timed_fit(clf: Any, data: sets.Split) -> float:
    """Fit, and return the seconds that it took."""
    begin = time.perf_counter()
    clf.fit(data.X, data.y)
    return time.perf_counter() - begin


# ---------------------------------------------------------------- the papers' experiments
def score(job: Job, context: Context) -> list[Row]:
    """One row: the scores at the end."""
    data, clf = _load(job, context), _classifier(job, context)
    seconds = _timed_fit(clf, data)
    return [stamp(job, context) | _outcome(clf, seconds, data)]


def temperature(job: Job, context: Context) -> list[Row]:
    """One row: the scores with the temperature, and those of the same fit without it."""
    data, clf = _load(job, context), _classifier(job, context)
    seconds = _timed_fit(clf, data)
    plain = clf.temperature_ * clf.predict_log_proba(data.X_test)
    plain = plain - logsumexp(plain, axis=1, keepdims=True)
    before = score_predictions(plain, clf.classes_, data.y_test)
    found = {"temperature": clf.temperature_, "nll_before": before["nll"], "ece_before": before["ece"]}
    found["ece_chance"] = chance_calibration_error(clf.predict_proba(data.X_test), job.split)
    return [stamp(job, context) | _outcome(clf, seconds, data) | found]


def history(job: Job, context: Context) -> list[Row]:
    """One row per epoch with log Z_q; the last row also has the scores."""
    data, clf = _load(job, context), _classifier(job, context)
    seconds = _timed_fit(clf, data)
    rows = [
        {"moment": row["epoch"], "seconds": row["seconds"], "log_evidence": row["log_evidence"], "last": 0}
        for row in clf.history_
    ]
    last = stamp(job, context) | _outcome(clf, seconds, data) | rows[-1] | {"last": 1}
    return [identify(job) | row for row in rows[:-1]] + [last]


def curve(job: Job, context: Context) -> list[Row]:
    """Scores during the run; the time of scoring does not count. The last row is the model that `fit` returns."""
    if job.method == "logistic":
        return _logistic(job, context)
    data = _load(job, context)
    recorded = ScoreCurve(data, job.options)
    clf = _classifier(job, context, callbacks=[recorded]).fit(data.X, data.y)
    total = recorded.seconds()
    last = {
        **_outcome(clf, total, data),
        "moment": recorded.updates + 1,
        "passes": recorded.passes(),
        "last": 1,
    }
    earlier = identify(job) | {"M": last["M"], "last": 0}
    return [earlier | row for row in recorded.rows] + [stamp(job, context) | last]


def _logistic(job: Job, context: Context) -> list[Row]:
    """Logistic regression on standardized features, for comparison."""
    from sklearn.linear_model import LogisticRegression

    data, model = sets.standardize(job.dataset, _load(job, context)), LogisticRegression(max_iter=500)
    seconds = _timed_fit(model, data)
    found = score_predictions(model.predict_log_proba(data.X_test), model.classes_, data.y_test)
    return [stamp(job, context) | found | {"seconds": seconds, "moment": 1, "passes": 0.0, "last": 1}]


def points(job: Job, context: Context) -> list[Row]:
    """The toy problem: learn only the inducing points; keep them and the predicted classes on a grid."""
    data = _load(job, context)
    first = np.random.default_rng(job.split).choice(len(data.y), int(job.inducing), replace=False)
    known = {"kernel": RBF(lengthscale=1.0, variance=1.0), "inducing": data.X[first]}
    clf = _classifier(job, context, **known)
    seconds = _timed_fit(clf, data)
    labels = np.searchsorted(clf.classes_, clf.predict(make_grid())).astype(np.uint8)
    found = {"points": pack(clf.inducing_points_.astype(np.float32)), "regions": pack(labels)}
    return [stamp(job, context) | _outcome(clf, seconds, data) | found]


# ---------------------------------------------------------------- the comparison with other libraries
def compared(job: Job, context: Context) -> list[Row]:
    """One fit of ours or of a peer: scores, seconds, rate of predictions, memory, size of the model."""
    data = sets.standardize(job.dataset, sets.split(job.dataset, job.split, context.data_home))
    _import_library(job.method)
    before = _resident_mb()
    if job.method in ALL_PEERS:
        model = FITS[job.method](data, job.split, context.device)
    else:
        model = _fit_ours(job, context, data)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    found = score_predictions(model.log_proba(data.X_test), model.classes, data.y_test)
    path = json.dumps([[round(s, 4), round(v, 6)] for s, v in model.curve]) if model.curve else ""
    row = {
        **found,
        "M": model.M,
        "seconds": model.seconds,
        "predict_rows_per_second": _prediction_rate(model, data.X_test),
        "peak_mb": max(0.0, peak),
        "model_kb": _size_in_bytes(model.model) / 1024,
        "curve": path,
        "note": model.note,
    }
    return [stamp(job, context) | row]


def _fit_ours(job: Job, context: Context, data: sets.Split) -> Fitted:
    """Time the default fit without callbacks; then, for "auto", fit again and record the test NLL."""
    clf = _classifier(job, context)
    seconds = _timed_fit(clf, data)
    path = _record_path(job, context, data, clf.n_epochs_) if job.method == "auto" else ()
    note, M = f"{clf.n_epochs_} epochs", clf.inducing_points_.shape[1]
    return Fitted(clf.predict_log_proba, clf.classes_, clf, seconds, note, path, M)


def _record_path(
    job: Job, context: Context, data: sets.Split, epochs: int
) -> tuple[tuple[float, float], ...]:
    """Seconds and test NLL during the same fit."""
    _, batch = default_sizes(len(data.y), len(np.unique(data.y)))
    recorded = ScoreCurve(data, {"batch_size": batch, "max_epochs": epochs})
    clf = _classifier(job, context, callbacks=[recorded]).fit(data.X, data.y)
    total = recorded.seconds()
    last = score_predictions(clf.predict_log_proba(data.X_test), clf.classes_, data.y_test)["nll"]
    return (*((row["seconds"], row["nll"]) for row in recorded.rows), (total, last))


def _prediction_rate(model: Fitted, X: sets.Array) -> float:
    """Rows per second, after a first call that warms up."""
    model.log_proba(X[:10])
    begin, rows = time.perf_counter(), 0
    while time.perf_counter() - begin < PREDICT_SECONDS:
        model.log_proba(X)
        rows += len(X)
    return rows / (time.perf_counter() - begin)


def _import_library(method: str) -> None:
    """Import what the fit will import, so that only the memory of the fit itself counts."""
    own_module = {
        "gpytorch": ["experiments.peer_gpytorch"],
        "gpflow": ["experiments.peer_gpflow"],
        "lightgbm": ["lightgbm"],
        "lightgbm_tuned": ["lightgbm"],
        "catboost": ["catboost"],
        "xgboost": ["xgboost"],
        "realmlp": ["pytabkit"],
        "xrfm": ["xrfm"],
    }
    sklearn = ["linear_model", "model_selection", "ensemble", "gaussian_process"]
    names = [f"sklearn.{name}" for name in sklearn] if method in ALL_PEERS else ["cavity.estimators"]
    for name in own_module.get(method, names):
        importlib.import_module(name)


def _size_in_bytes(model: Any) -> int:
    """Bytes of the pickled model, or of its `weights()` if it has them."""
    weights = getattr(model, "weights", None)
    try:
        return len(pickle.dumps(model if weights is None else weights()))
    except (pickle.PicklingError, TypeError, AttributeError):
        return 0  # not measured


def _resident_mb() -> float:
    """Resident memory of this process."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize() / 2**20
    except OSError:  # outside Linux: the peak so far
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


KINDS: dict[str, Callable[[Job, Context], list[Row]]] = {
    "score": score,
    "temperature": temperature,
    "history": history,
    "curve": curve,
    "points": points,
    "compared": compared,
}
