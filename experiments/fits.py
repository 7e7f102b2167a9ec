"""Run a job: fit, score, and return its rows."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from cavity.kernels import RBF
from experiments import sets
from experiments.curves import ScoreCurve
from experiments.draws import draws
from experiments.jobs import Context, Job, Row, identify, stamp
from experiments.methods import make_classifier
from experiments.regression import regression
from experiments.scores import score_predictions
from experiments.toy import make_grid, pack


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
        **score_predictions(
            clf.predict_log_proba(data.X_test), clf.classes_, data.y_test
        ),
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
    data = _load(job, context)
    clf = _classifier(job, context)
    seconds = _timed_fit(clf, data)
    return [stamp(job, context) | _outcome(clf, seconds, data)]


def history(job: Job, context: Context) -> list[Row]:
    """One row per epoch with log Z_q; the last row also has the scores."""
    data = _load(job, context)
    clf = _classifier(job, context)
    seconds = _timed_fit(clf, data)
    rows = [
        {
            "moment": row["epoch"],
            "seconds": row["seconds"],
            "log_evidence": row["log_evidence"],
            "last": 0,
        }
        for row in clf.history_
    ]
    last = stamp(job, context) | _outcome(clf, seconds, data) | rows[-1] | {"last": 1}
    return [identify(job) | row for row in rows[:-1]] + [last]


def curve(job: Job, context: Context) -> list[Row]:
    """Scores during the run; the time of scoring does not count.

    The last row is the model that `fit` returns.
    """
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

    data = sets.standardize(job.dataset, _load(job, context))
    model = LogisticRegression(max_iter=500)
    seconds = _timed_fit(model, data)
    found = score_predictions(
        model.predict_log_proba(data.X_test), model.classes_, data.y_test
    )
    return [
        stamp(job, context)
        | found
        | {"seconds": seconds, "moment": 1, "passes": 0.0, "last": 1}
    ]


def points(job: Job, context: Context) -> list[Row]:
    """The toy problem: learn only the inducing points; keep them and the predicted
    classes on a grid.
    """
    data = _load(job, context)
    first = np.random.default_rng(job.split).choice(
        len(data.y), int(job.inducing), replace=False
    )
    known = {"kernel": RBF(lengthscale=1.0, variance=1.0), "inducing": data.X[first]}
    clf = _classifier(job, context, **known)
    seconds = _timed_fit(clf, data)
    labels = np.searchsorted(clf.classes_, clf.predict(make_grid())).astype(np.uint8)
    found = {
        "points": pack(clf.inducing_points_.astype(np.float32)),
        "regions": pack(labels),
    }
    return [stamp(job, context) | _outcome(clf, seconds, data) | found]


KINDS: dict[str, Callable[[Job, Context], list[Row]]] = {
    "score": score,
    "history": history,
    "curve": curve,
    "points": points,
    "regression": regression,
    "draws": draws,
}
