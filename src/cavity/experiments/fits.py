"""A job is run here: fit, judge, and hand back rows."""

from __future__ import annotations

import base64
import math
import time
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.experiments import sets
from cavity.experiments.jobs import Job
from cavity.experiments.methods import METHODS
from cavity.experiments.provenance import Place, versions
from cavity.experiments.rows import Row
from cavity.experiments.scores import scores

GRID = 64  # points a side at which the toy's regions are kept


def run(job: Job, place: Place) -> list[Row]:
    """The rows of one job; a process of one thread calls this."""
    import torch

    torch.set_num_threads(place.threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return KINDS[job.kind](job, place)


def named(job: Job) -> Row:
    """Whose row it is."""
    return {
        "dataset": job.dataset,
        "split": job.split,
        "method": job.method,
        "inducing": job.inducing,
        "flip": float(job.flip),
        "settings": job.settings,
    }


def stamp(job: Job, place: Place) -> Row:
    """Whose row it is and where it comes from; of a curve its last row says so, and the moments before it do without."""
    origin = {"seed": job.split, "commit": place.commit, "versions": versions(), "device": place.device}
    return named(job) | origin


def classifier(job: Job, place: Place, **further: Any) -> Any:
    """The job's GPClassifier, not fitted."""
    from cavity import GPClassifier

    kind, own = METHODS[job.method]
    size = {} if job.n_inducing is None else {"n_inducing": job.n_inducing}
    settings = {"device": place.device, "random_state": job.split, **size, **job.options, **own, **further}
    return GPClassifier(kind, **settings)


def outcome(clf: Any, seconds: float, data: sets.Split) -> Row:
    """Scores of a fitted classifier, and how the fit went."""
    return {
        **scores(clf.predict_log_proba(data.X_test), clf.classes_, data.y_test),
        "M": clf.inducing_points_.shape[1],
        "seconds": seconds,
        "epochs": clf.n_epochs_,
        "repairs": sum(row["repairs"] for row in clf.history_),
        "epsilon": getattr(clf, "epsilon_", math.nan),
        "log_evidence": float(clf.log_marginal_likelihood_),
    }


def _data(job: Job, place: Place) -> sets.Split:
    data = sets.split(job.dataset, job.split, place.data_home)
    return sets.flipped(data, job.flip, job.split) if job.flip else data


def score(job: Job, place: Place) -> list[Row]:
    """One row: the scores at the end."""
    data = _data(job, place)
    begin = time.perf_counter()
    clf = classifier(job, place).fit(data.X, data.y)
    return [stamp(job, place) | outcome(clf, time.perf_counter() - begin, data)]


def history(job: Job, place: Place) -> list[Row]:
    """A row an epoch with log Z_q; the last one has the scores."""
    data = _data(job, place)
    begin = time.perf_counter()
    clf = classifier(job, place).fit(data.X, data.y)
    total = time.perf_counter() - begin
    rows = [
        {"moment": row["epoch"], "seconds": row["seconds"], "log_evidence": row["log_evidence"], "last": 0}
        for row in clf.history_
    ]
    last = stamp(job, place) | outcome(clf, total, data) | rows[-1] | {"last": 1}
    return [named(job) | row for row in rows[:-1]] + [last]


def curve(job: Job, place: Place) -> list[Row]:
    """Scores at moments of the run, the time of scoring left out; the last row is the fit as `fit` returns it."""
    from cavity.experiments.curves import Curve

    if job.method == "logistic":
        return _logistic(job, place)
    data = _data(job, place)
    watcher = Curve(data, job.options)
    clf = classifier(job, place, callbacks=[watcher]).fit(data.X, data.y)
    total = watcher.clock()
    last = {**outcome(clf, total, data), "moment": watcher.done + 1, "passes": watcher.passes(), "last": 1}
    earlier = named(job) | {"M": last["M"], "last": 0}
    return [earlier | row for row in watcher.rows] + [stamp(job, place) | last]


def _logistic(job: Job, place: Place) -> list[Row]:
    """A linear model on standardised columns, to compare with."""
    from sklearn.linear_model import LogisticRegression

    data = sets.standardised(job.dataset, _data(job, place))
    begin = time.perf_counter()
    model = LogisticRegression(max_iter=500).fit(data.X, data.y)
    seconds = time.perf_counter() - begin
    found = scores(model.predict_log_proba(data.X_test), model.classes_, data.y_test)
    return [stamp(job, place) | found | {"seconds": seconds, "moment": 1, "passes": 0.0, "last": 1}]


def points(job: Job, place: Place) -> list[Row]:
    """The toy: where inducing points end and which class is predicted where; all else at its true value, and fixed."""
    from cavity.kernels import RBF

    data = _data(job, place)
    first = np.random.default_rng(job.split).choice(len(data.y), int(job.inducing), replace=False)
    known = {"kernel": RBF(lengthscale=1.0, variance=1.0), "inducing": data.X[first]}
    begin = time.perf_counter()
    clf = classifier(job, place, **known).fit(data.X, data.y)
    seconds = time.perf_counter() - begin
    labels = np.searchsorted(clf.classes_, clf.predict(plane())).astype(np.uint8)
    found = {"points": pack(clf.inducing_points_.astype(np.float32)), "regions": pack(labels)}
    return [stamp(job, place) | outcome(clf, seconds, data) | found]


def plane() -> NDArray[np.float64]:
    """The toy's box as a grid of rows, left to right and then up."""
    from cavity.report.problems import BOX

    across = np.linspace(-BOX, BOX, GRID)
    xx, yy = np.meshgrid(across, across)
    return np.column_stack([xx.ravel(), yy.ravel()])


def pack(values: NDArray[Any]) -> str:
    """An array as text for a cell."""
    return base64.b85encode(zlib.compress(values.tobytes(), 9)).decode()


def unpack(text: str, dtype: Any, *shape: int) -> NDArray[Any]:
    """The array that `pack` was given."""
    return np.frombuffer(zlib.decompress(base64.b85decode(text)), dtype=dtype).reshape(*shape)


def compared(job: Job, place: Place) -> list[Row]:
    """One of ours or one of the peers, with times, memory and size."""
    from cavity.experiments.compare import measure

    return measure(job, place)


KINDS: dict[str, Callable[[Job, Place], list[Row]]] = {
    "score": score,
    "history": history,
    "curve": curve,
    "points": points,
    "compared": compared,
}
