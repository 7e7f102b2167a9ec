"""Figure of the demo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cavity.report.colours import COLOURS
from cavity.report.demo_problems import DemoResult
from cavity.report.region_plot import decision_regions
from cavity.report.score_plots import learning_curve, reliability_diagram
from cavity.report.style import FIGURE_STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLE: dict[Any, Any] = FIGURE_STYLE | {
    "font.size": 10.5,
    "axes.edgecolor": "#888888",
    "axes.labelcolor": "#333333",
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "grid.color": "#e8e8e8",
}
EARLY = 12  # the first 1/12 of the epochs is too steep to draw to scale


def draw(results: list[DemoResult], path: Path) -> None:
    """Draw three panels: decision regions of the toy set, reliability on digits, learning curves."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    by_name = {(result.problem.name, result.method): result for result in results}
    with rc_context(STYLE):
        figure = Figure(figsize=(15.4, 5.4), layout="constrained")
        left, middle, right = figure.subplots(1, 3)
        _draw_regions(by_name["toy", "EP"], left)
        _draw_reliability(by_name["digits", "EP"], by_name["digits", "logistic regression"], middle)
        _draw_curves([by_name[name, method] for name in ("digits", "toy") for method in ("EP", "SEP")], right)
        figure.savefig(path, dpi=100, metadata={"Software": None})


def _set_title(ax: Axes, title: str, below: str) -> None:
    ax.set_title(title + "\n", loc="left", fontsize=12.5, fontweight="bold", pad=4)
    ax.text(0, 1.025, below, transform=ax.transAxes, fontsize=10, color="#666666", in_layout=False)
    ax.set_box_aspect(1)


def _draw_regions(ep: DemoResult, ax: Axes) -> None:
    decision_regions(ep.model, ep.problem.X, ep.problem.y, ax)
    ax.grid(False)
    M = ep.model.inducing_points_.shape[1]
    _set_title(
        ax, "Decision regions, EP on the toy set", f"rings: the {M} learned inducing points of each class"
    )
    ax.set_xlabel("x₁")
    ax.set_ylabel("x₂")


def _draw_reliability(ep: DemoResult, other: DemoResult, ax: Axes) -> None:
    for result, colour in ((other, "#8a8a8a"), (ep, COLOURS[0])):
        label = f"{result.method}: ECE {result.row()['ECE']}"
        reliability_diagram(result.P, result.problem.y_test, ax, label=label, colour=colour)
    _set_title(ax, "Reliability on digits", "above the diagonal: underconfident; below: overconfident")
    ax.set_xlabel("probability of the predicted class")
    ax.set_ylabel("fraction of correct predictions")
    ax.legend(loc="lower right")


def _draw_curves(results: list[DemoResult], ax: Axes) -> None:
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
    _set_title(ax, "Learning curves", "the steep first epochs are cut off")
    ax.set_xlabel("epoch")
    ax.set_ylabel("objective per row")
    ax.legend(loc="lower right")
