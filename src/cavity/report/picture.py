"""The demo's picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cavity.report.plots import COLOURS, decision_regions, learning_curve, reliability_diagram
from cavity.report.problems import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOOK: dict[Any, Any] = {
    "font.size": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.labelcolor": "#333333",
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e8e8e8",
    "legend.frameon": False,
}
EARLY = 12  # the first 1/12 of the epochs climbs too steeply to be drawn to scale


def draw(results: list[Result], path: Path) -> None:
    """Three panels: the toy's decision regions; reliability on digits; learning curves."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    of = {(result.problem.name, result.method): result for result in results}
    with rc_context(LOOK):
        figure = Figure(figsize=(15.4, 5.4), layout="constrained")
        left, middle, right = figure.subplots(1, 3)
        _regions(of["toy", "EP"], left)
        _reliability(of["digits", "EP"], of["digits", "logistic regression"], middle)
        _curves([of[name, method] for name in ("digits", "toy") for method in ("EP", "SEP")], right)
        figure.savefig(path, dpi=100, metadata={"Software": None})


def _title(ax: Axes, title: str, below: str) -> None:
    ax.set_title(title + "\n", loc="left", fontsize=12.5, fontweight="bold", pad=4)
    ax.text(0, 1.025, below, transform=ax.transAxes, fontsize=10, color="#666666", in_layout=False)
    ax.set_box_aspect(1)


def _regions(ep: Result, ax: Axes) -> None:
    decision_regions(ep.model, ep.problem.X, ep.problem.y, ax)
    ax.grid(False)
    M = ep.model.inducing_points_.shape[1]
    _title(ax, "Decision regions, EP on the toy set", f"rings: the {M} inducing points of each class, learnt")
    ax.set_xlabel("x₁")
    ax.set_ylabel("x₂")


def _reliability(ep: Result, other: Result, ax: Axes) -> None:
    for result, colour in ((other, "#8a8a8a"), (ep, COLOURS[0])):
        label = f"{result.method}: ECE {result.row()['ECE']}"
        reliability_diagram(result.P, result.problem.y_test, ax, label=label, colour=colour)
    _title(ax, "Reliability on digits", "above the diagonal: too cautious; below: too bold")
    ax.set_xlabel("probability of the predicted class")
    ax.set_ylabel("share of predictions that are right")
    ax.legend(loc="lower right")


def _curves(results: list[Result], ax: Axes) -> None:
    shown: list[float] = []
    for result in results:
        history, N = result.model.history_, len(result.problem.y)
        learning_curve(
            history,
            ax,
            rows=N,
            against="epoch",
            label=f"{result.method}, {result.problem.name}",
            colour=COLOURS[0] if result.method == "EP" else COLOURS[1],
            style="--" if result.problem.name == "toy" else "-",
        )
        shown += [row["objective"] / N for row in history[len(history) // EARLY :]]
    low, high = min(shown), max(shown)
    ax.set_ylim(low, high + 0.05 * (high - low))
    _title(ax, "Learning curves", "the climb of the first epochs is cut off")
    ax.set_xlabel("epoch")
    ax.set_ylabel("objective per row")
    ax.legend(loc="lower right")
