"""One setting of ours, the shipped default, beside the peers: same splits, same standardisation, one process a fit."""

from __future__ import annotations

import importlib
import json
import pickle
import resource
import sys
import time
from typing import Any

import numpy as np

from cavity.experiments import fits, sets
from cavity.experiments.jobs import Job
from cavity.experiments.peers import PEERS, Peer
from cavity.experiments.provenance import Place
from cavity.experiments.rows import Row
from cavity.experiments.scores import scores

OURS = ("auto", "ep", "sep", "rep", "vi_natural", "gfitc")
SETS = (*sets.UCI, "digits", "mnist")
SPLITS = {"mnist": 1}
USUAL_SPLITS = 5
MOST_ROWS = {"sklearn_gp": 2000, "gfitc": 1300}  # above, a fit takes hours
LEAST_SECONDS = 0.5  # of predicting, for a rate that means something
MOMENTS = 40


def jobs() -> list[Job]:
    """Every method on every set where it is feasible."""
    return [
        Job("compared", d, s, m, "")
        for d in SETS
        for m in (*OURS, *PEERS)
        if sets.SIZES[d][0] <= MOST_ROWS.get(m, sys.maxsize)
        for s in range(SPLITS.get(d, USUAL_SPLITS))
    ]


def measure(job: Job, place: Place) -> list[Row]:
    """Fit, then time predictions, and weigh the model."""
    data = sets.standardised(job.dataset, sets.split(job.dataset, job.split, place.data_home))
    _load(job.method)
    before = _resident()
    peer = PEERS[job.method](data, job.split, place.device) if job.method in PEERS else ours(job, place, data)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    found = scores(peer.log_proba(data.X_test), peer.classes, data.y_test)
    curve = json.dumps([[round(s, 4), round(v, 6)] for s, v in peer.curve]) if peer.curve else ""
    row = {
        **found,
        "M": peer.M,
        "seconds": peer.seconds,
        "predict_rows_per_second": rate(peer, data.X_test),
        "peak_mb": max(0.0, peak),
        "model_kb": _weight(peer.model) / 1024,
        "curve": curve,
        "note": peer.note,
    }
    return [fits.stamp(job, place) | row]


def ours(job: Job, place: Place, data: sets.Split) -> Peer:
    """The default fit, timed without a watcher; then once more, watched, for the way to its level."""
    begin = time.perf_counter()
    clf = fits.classifier(job, place).fit(data.X, data.y)
    seconds = time.perf_counter() - begin
    curve: tuple[tuple[float, float], ...] = ()
    if job.method == "auto":
        curve = watched(job, place, data, clf.n_epochs_)
    note = f"{clf.n_epochs_} epochs"
    return Peer(clf.predict_log_proba, clf.classes_, clf, seconds, note, curve, clf.inducing_points_.shape[1])


def watched(job: Job, place: Place, data: sets.Split, epochs: int) -> tuple[tuple[float, float], ...]:
    """Seconds and test NLL on the way of the same fit."""
    from cavity.experiments.curves import Curve
    from cavity.experiments.defaults import our_sizes

    _, batch = our_sizes(len(data.y), len(np.unique(data.y)))
    watcher = Curve(data, {"batch_size": batch, "max_epochs": epochs}, MOMENTS)
    clf = fits.classifier(job, place, callbacks=[watcher]).fit(data.X, data.y)
    total = watcher.clock()
    last = scores(clf.predict_log_proba(data.X_test), clf.classes_, data.y_test)["nll"]
    return (*((r["seconds"], r["nll"]) for r in watcher.rows), (total, last))


def rate(peer: Peer, X: sets.Array) -> float:
    """Rows a second, after a first call that warms up."""
    peer.log_proba(X[:10])
    begin, rows = time.perf_counter(), 0
    while time.perf_counter() - begin < LEAST_SECONDS:
        peer.log_proba(X)
        rows += len(X)
    return rows / (time.perf_counter() - begin)


def _load(method: str) -> None:
    """Import what the fit will import, so that only the fit's own memory is counted."""
    wanted = {
        "gpytorch": ["cavity.experiments.svgp"],
        "gpflow": ["cavity.experiments.robust_max"],
        "lightgbm": ["lightgbm"],
    }
    usual = [
        "sklearn.linear_model",
        "sklearn.model_selection",
        "sklearn.ensemble",
        "sklearn.gaussian_process",
    ]
    for name in wanted.get(
        method, usual if method in PEERS else ["cavity.estimators", "cavity.experiments.curves"]
    ):
        importlib.import_module(name)


def _weight(model: Any) -> int:
    """Bytes of the pickled model; of what has `weights`, of those."""
    weights = getattr(model, "weights", None)
    return len(pickle.dumps(model if weights is None else weights()))


def _resident() -> float:
    """Megabytes in memory now."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize() / 2**20
    except OSError:  # no such file outside Linux: the peak so far
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
