"""Figures of the report, drawn for a light and for a dark page, as data URLs."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cavity.errors import missing_extra
from cavity.estimators import GPClassifier
from cavity.report import plots
from cavity.report.calibration import expected_calibration_error, reliability
from cavity.report.model_card import MAX_LINES, Predictions
from cavity.report.selective import rejection
from cavity.report.style import FIGURE_STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

THEMES = {"light": ("#ffffff", "#333333", "#e6e6e6"), "dark": ("#1b1e23", "#d5d8dc", "#3a3f47")}
MAX_POINTS = 3000  # rows in the figure of decision regions


class ReportFigure(NamedTuple):
    """Figure of the report: data URLs for the light and the dark page, caption, and text for screen readers."""

    name: str
    caption: str
    alt: str
    light: str
    dark: str


def draw_figures(clf: GPClassifier, predictions: Predictions | None, names: list[str]) -> list[ReportFigure]:
    """Draw all figures for which there are data."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise missing_extra("matplotlib", "plot") from None
    return [
        ReportFigure(name, caption, alt, _render(draw, size, "light"), _render(draw, size, "dark"))
        for name, caption, alt, size, draw in _plan_figures(clf, predictions, names)
    ]


Plan = tuple[str, str, str, tuple[float, float], Callable[["Axes"], Any]]


def _plan_figures(clf: GPClassifier, predictions: Predictions | None, names: list[str]) -> Iterator[Plan]:
    history = clf.history_
    if history:
        first, last = history[0]["objective"], history[-1]["objective"]
        yield (
            "learning",
            "The training objective after each epoch.",
            f"Line of the objective over {len(history)} epochs, from {first:.4g} to {last:.4g}.",
            (6, 3.6),
            lambda ax: plots.learning_curve(history, ax, against="epoch"),
        )
    if predictions is not None and predictions.codes is not None:
        yield from _plan_with_labels(clf, predictions)
    if predictions is not None and predictions.y is not None and predictions.X.shape[1] == 2:
        yield _plan_regions(clf, predictions, names)
    weights = clf.feature_relevance_
    names = list(getattr(clf, "feature_names_in_", names)) if hasattr(clf, "preparation_") else names
    if weights is not None and len(weights) == len(names):
        best = np.argsort(-np.asarray(weights), kind="stable")[:3]
        ranked = ", ".join(f"{names[d]} {weights[d]:.2f}" for d in best)
        yield (
            "relevance",
            "Inverse lengthscales in units of the standard deviation of each column, averaged over classes; they sum to one.",
            f"Bars of the relevance of {min(len(names), plots.BARS)} columns; the largest: {ranked}.",
            (6, 1.2 + 0.27 * min(len(names), plots.BARS)),
            lambda ax: plots.relevance_bars(weights, ax, names=names),
        )


def _plan_with_labels(clf: GPClassifier, predictions: Predictions) -> Iterator[Plan]:
    P, codes = predictions.P, predictions.codes
    ece = expected_calibration_error(P, codes)
    bins = int((reliability(P, codes).rows > 0).sum())
    yield (
        "calibration",
        "Accuracy of predictions against their probability, with one standard error. Points on the diagonal are calibrated, "
        "points above it underconfident, points below it overconfident.",
        f"Reliability diagram of {bins} bins with rows; expected calibration error {ece:.3f}.",
        (5, 4.6),
        lambda ax: plots.reliability_diagram(P, codes, ax),
    )
    correct = int((predictions.predicted == predictions.y).sum())
    C = len(clf.classes_)
    side = 4.2 + 0.22 * min(C, plots.CELLS)
    yield (
        "confusion",
        "Number of rows by true class (vertical) and predicted class (horizontal).",
        f"Confusion matrix of {C} classes: {correct} of {len(P)} rows are on the diagonal, that is correct.",
        (side, side * 0.92),
        lambda ax: plots.confusion_matrix(predictions.y, predictions.predicted, ax, labels=clf.classes_),
    )
    curve = rejection(P, codes)
    half = curve.error[min(int(np.searchsorted(curve.rejected, 0.5)), len(curve.error) - 1)]
    yield (
        "rejection",
        "Error of the kept rows when the least certain rows are rejected.",
        f"Error falls from {curve.error[0]:.3f} of all rows to {half:.3f} of the more certain half.",
        (6, 3.6),
        lambda ax: plots.rejection_curve(P, codes, ax),
    )


def _plan_regions(clf: GPClassifier, predictions: Predictions, names: list[str]) -> Plan:
    shown = np.linspace(0, len(predictions.X) - 1, min(len(predictions.X), MAX_POINTS)).astype(int)

    def draw(ax: Axes) -> None:
        plots.decision_regions(clf, predictions.X[shown], predictions.y[shown], ax, grid=80)  # type: ignore[index]
        ax.grid(False)
        ax.set_xlabel(names[0])
        ax.set_ylabel(names[1])

    return (
        "regions",
        "Class probabilities as mixed colours, decision boundaries, rows as dots, inducing points as rings.",
        f"Map of {min(len(clf.classes_), MAX_LINES)} classes over {names[0]} and {names[1]}.",
        (5.4, 5),
        draw,
    )


def _render(draw: Callable[[Axes], Any], size: tuple[float, float], theme: str) -> str:
    """Draw a figure and return it as a data URL of a PNG."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    paper, ink, line = THEMES[theme]
    colours: dict[Any, Any] = {
        "figure.facecolor": paper,
        "axes.facecolor": paper,
        "axes.edgecolor": ink,
        "axes.labelcolor": ink,
        "text.color": ink,
        "xtick.color": ink,
        "ytick.color": ink,
        "grid.color": line,
    }
    with rc_context({**FIGURE_STYLE, **colours}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=110, metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")
