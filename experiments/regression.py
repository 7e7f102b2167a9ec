"""Regression of the review: R² on test rows against CPU seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray
from sklearn.metrics import r2_score

from cavity import GPRegressor, Training
from cavity.callbacks import Callback
from cavity.methods import SVGP
from cavity.prediction.model import snapshot
from cavity.prediction.predict import predict_latent
from cavity.report.colours import COLOURS
from experiments import sets
from experiments.jobs import Context, Job, Row, identify, stamp

BATCH = 100
OPTIMIZERS = {"svi-FG": "gradient", "svi-SAG": "sag", "means-PN": "newton"}
METHODS: dict[str, dict[str, Any]] = {
    "svi-natural": {"method": "svi", "batch_size": BATCH},
    "svi-L-BFGS-B": {"method": SVGP(q_update="gradient")},
    "svi-FG": {"method": SVGP(q_update="gradient"), "learning_rate": 0.3},
    "svi-SAG": {
        "method": SVGP(q_update="gradient"),
        "learning_rate": 0.1,
        "batch_size": BATCH,
    },
    "vi-means": {"method": "vi"},
    "means-PN": {"method": "vi"},
}
NO_LIMIT = 100_000  # epochs: seconds end these fits
SHOWN = 1.2  # R² between the limits of an axis, at most


# ---------------------------------------------------------------- curves
class Recorder:
    """CPU seconds since the start, and R² each time these have grown by a tenth."""

    def __init__(self) -> None:
        self.begin = time.process_time()
        self.evaluating = 0.0
        self.points: list[tuple[float, float]] = []

    def seconds(self) -> float:
        """CPU seconds without evaluations."""
        return time.process_time() - self.begin - self.evaluating

    def record(self, r2: Callable[[], float], last: bool = False) -> None:
        """Evaluate R² if it is due, or if this is the last call."""
        now = self.seconds()
        if self.points and now < 1.1 * self.points[-1][0] and not last:
            return
        begin = time.process_time()
        self.points.append((now, r2()))
        self.evaluating += time.process_time() - begin


class Evaluation(Callback):
    """Record R² after epochs and at the end; stop after `limit` seconds."""

    def __init__(self, X: NDArray[Any], y: NDArray[Any], limit: float) -> None:
        self.X, self.y, self.limit = X, y, limit
        self.recorder = Recorder()

    def start(self, run: Any) -> None:
        self.recorder = Recorder()

    def epoch(self, run: Any, row: dict[str, Any]) -> bool:
        over = self.recorder.seconds() > self.limit
        self.recorder.record(lambda: self._r2(run), last=over)
        return over

    def end(self, run: Any) -> None:
        self.recorder.record(lambda: self._r2(run), last=True)

    def _r2(self, run: Any) -> float:
        mean = predict_latent(snapshot(run.engine, run.state), self.X).mean[:, 0]
        return float(r2_score(self.y, mean))


def make_regressor(method: str, points: int, **arguments: Any) -> GPRegressor:
    """An unfitted GPRegressor for a method's name in the review.

    As there, inducing points stay at the means of k-means.
    """
    training = Training(
        learn=("kernel", "noise"),
        tol=0.0,
        optimizer=OPTIMIZERS.get(method, "auto"),  # type: ignore[arg-type]
    )
    common: dict[str, Any] = {
        "inducing": "kmeans",
        "n_inducing": points,
        "normalize_y": False,
        "max_epochs": NO_LIMIT,
        "training": training,
    }
    return GPRegressor(**common | METHODS[method] | arguments)


def regression(job: Job, context: Context) -> list[Row]:
    """One row per evaluation; the last is the model that `fit` returns."""
    data = sets.split(job.dataset, job.split, context.data_home)
    evaluation = Evaluation(data.X_test, data.y_test, job.options["max_seconds"])
    make_regressor(
        job.method,
        int(job.inducing),
        device=context.device,
        random_state=job.split,
        callbacks=[evaluation],
    ).fit(data.X, data.y)

    rows = [
        identify(job) | {"moment": i, "seconds": seconds, "r2": r2, "last": 0}
        for i, (seconds, r2) in enumerate(evaluation.recorder.points)
    ]
    rows[-1] |= stamp(job, context) | {"last": 1}
    return rows


# ---------------------------------------------------------------- figure and table
def seconds_to_end(curve: list[Row]) -> float:
    """Seconds after which R² stays within 0.01 of its last value."""
    last = curve[-1]["r2"]
    settled = curve[-1]["seconds"]
    for row in reversed(curve):
        if abs(row["r2"] - last) > 0.01:
            break
        settled = row["seconds"]
    return float(settled)


def end_cells(rows: list[Row]) -> list[list[str]]:
    """A line per method: R² at the end and `seconds_to_end`, by data set; the head
    first.
    """
    found = {r["dataset"] for r in rows}
    names = [name for name in sets.REGRESSION if name in found]
    lines = [["R², seconds", *names]]
    for method in (m for m in METHODS if any(r["method"] == m for r in rows)):
        cells = []
        for name in names:
            curve = [r for r in rows if (r["dataset"], r["method"]) == (name, method)]
            cells.append(_end_cell(curve) if curve else "")
        lines.append([method, *cells])
    return lines


def _end_cell(curve: list[Row]) -> str:
    return f"{curve[-1]['r2']:.3f}, {seconds_to_end(curve):.2g} s"


def draw_curves(figure: Any, rows: list[Row]) -> None:
    """R² against seconds: one panel per data set, one line per method."""
    found = {r["dataset"] for r in rows}
    names = [name for name in sets.REGRESSION if name in found]
    height = 2 if len(names) > 3 else 1
    width = len(names) // height
    figure.set_size_inches(4.2 * max(1.4, width), 3.4 * height)
    panels = figure.subplots(height, width, squeeze=False).ravel()
    for axis, name in zip(panels, names, strict=True):
        some = [r for r in rows if r["dataset"] == name]
        for colour, method in zip(COLOURS, METHODS, strict=False):
            line = [r for r in some if r["method"] == method]
            if line:
                x, r2 = ([r[key] for r in line] for key in ("seconds", "r2"))
                axis.plot(x, r2, color=colour, label=method)
        values = [r["r2"] for r in some]
        lowest, best = max(0.0, min(values)), max(values)
        margin = 0.05 * (best - lowest)
        N, D, _ = sets.SIZES[name]
        axis.set(
            xscale="log",
            xlabel="CPU seconds",
            ylabel="R² on test rows",
            title=f"{name}: n = {N}, d = {D}, m = {some[0]['inducing']}",
            ylim=(lowest - margin, best + margin),
        )
        axis.xaxis.set_minor_formatter("")
    lines, labels = panels[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=len(labels))
