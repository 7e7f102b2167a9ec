"""The pictures of the report: drawn for a light and for a dark page, as data that a page can carry."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cavity.errors import BadOption
from cavity.report import plots
from cavity.report.calibration import expected_calibration_error, reliability
from cavity.report.card import COLUMNS, Judged
from cavity.report.selective import rejection

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COMMON: dict[Any, Any] = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "text.parse_math": False,
}
INKS = {"light": ("#ffffff", "#333333", "#e6e6e6"), "dark": ("#1b1e23", "#d5d8dc", "#3a3f47")}
MANY_ROWS = 3000  # rows that the decision regions show


class Picture(NamedTuple):
    """One figure of the page: its address as data, light and dark, and what it shows in words."""

    name: str
    title: str
    caption: str
    alt: str
    light: str
    dark: str


def pictures(clf: Any, judged: Judged | None, names: list[str]) -> list[Picture]:
    """All that there is something to draw for."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise BadOption(
            "the report draws with matplotlib, which is not installed: pip install cavity[plot]"
        ) from None
    return [
        Picture(name, title, caption, alt, _drawn(draw, size, "light"), _drawn(draw, size, "dark"))
        for name, title, caption, alt, size, draw in _wanted(clf, judged, names)
    ]


Wanted = tuple[str, str, str, str, tuple[float, float], Callable[["Axes"], Any]]


def _wanted(clf: Any, judged: Judged | None, names: list[str]) -> Iterator[Wanted]:
    history = getattr(clf, "history_", None)
    if history:
        first, last = history[0]["objective"], history[-1]["objective"]
        yield (
            "learning",
            "Learning curve",
            "What training maximises, after each epoch.",
            f"Line of the objective over {len(history)} epochs, from {first:.4g} to {last:.4g}.",
            (6, 3.6),
            lambda ax: plots.learning_curve(history, ax, against="epoch"),
        )
    if judged is not None and judged.place is not None:
        yield from _with_labels(clf, judged)
    if judged is not None and judged.y is not None and judged.X.shape[1] == 2:
        yield _regions(clf, judged, names)
    weights = getattr(clf, "feature_relevance_", None)
    if weights is not None and len(weights) == len(names):
        best = np.argsort(-np.asarray(weights), kind="stable")[:3]
        ranked = ", ".join(f"{names[d]} {weights[d]:.2f}" for d in best)
        yield (
            "relevance",
            "Feature relevance",
            "Inverse lengthscales in units of each column's spread, averaged over classes; they sum to one.",
            f"Bars of the relevance of {min(len(names), plots.BARS)} columns; the largest: {ranked}.",
            (6, 1.2 + 0.27 * min(len(names), plots.BARS)),
            lambda ax: plots.relevance_bars(weights, ax, names=names),
        )


def _with_labels(clf: Any, judged: Judged) -> Iterator[Wanted]:
    P, place = judged.P, judged.place
    ece = expected_calibration_error(P, place)
    bins = int((reliability(P, place).rows > 0).sum())
    yield (
        "calibration",
        "Calibration",
        "How often predictions of a probability are right, with one standard error. On the diagonal is calibrated, above it too "
        "cautious, below it too bold.",
        f"Reliability diagram of {bins} bins that hold rows; expected calibration error {ece:.3f}.",
        (5, 4.6),
        lambda ax: plots.reliability_diagram(P, place, ax),
    )
    right = int((judged.predicted == judged.y).sum())
    C = len(clf.classes_)
    side = 4.2 + 0.22 * min(C, plots.CELLS)
    yield (
        "confusion",
        "Confusion matrix",
        "Rows of each true class (down) by predicted class (across).",
        f"Confusion matrix of {C} classes: {right} of {len(P)} rows are on the diagonal, that is right.",
        (side, side * 0.92),
        lambda ax: plots.confusion_matrix(judged.y, judged.predicted, ax, labels=clf.classes_),
    )
    curve = rejection(P, place)
    half = curve.error[min(int(np.searchsorted(curve.rejected, 0.5)), len(curve.error) - 1)]
    yield (
        "rejection",
        "Rejection curve",
        "Error of the rows that are kept when the least certain are left to somebody else.",
        f"Error falls from {curve.error[0]:.3f} of all rows to {half:.3f} of the more certain half.",
        (6, 3.6),
        lambda ax: plots.rejection_curve(P, place, ax),
    )


def _regions(clf: Any, judged: Judged, names: list[str]) -> Wanted:
    shown = np.linspace(0, len(judged.X) - 1, min(len(judged.X), MANY_ROWS)).astype(int)

    def draw(ax: Axes) -> None:
        plots.decision_regions(clf, judged.X[shown], judged.y[shown], ax, grid=80)  # type: ignore[index]
        ax.grid(False)
        ax.set_xlabel(names[0])
        ax.set_ylabel(names[1])

    return (
        "regions",
        "Decision regions",
        "Class probabilities as mixed colours, boundaries of the predicted classes, rows as dots, inducing points as rings.",
        f"Map of {min(len(clf.classes_), COLUMNS)} classes over {names[0]} and {names[1]}.",
        (5.4, 5),
        draw,
    )


def _drawn(draw: Callable[[Axes], Any], size: tuple[float, float], theme: str) -> str:
    """A PNG as a data address."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    paper, ink, line = INKS[theme]
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
    with rc_context({**COMMON, **colours}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=110, metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")
