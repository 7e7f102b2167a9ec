"""Draw the README's figure: what three models believe far from their data, and the
price of a good test NLL.

    python docs/figures/strength.py

The maps are computed here; NLL and seconds are those of the raw tables that decided
nothing, of benchmarks/results/raw_tables.csv.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from cavity import GPClassifier

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from experiments.table_summary import (
    compare,
    fit_seconds,
    floored_nll,
    geometric_mean,
    read_results,
)

RESULTS = ROOT / "benchmarks" / "results" / "raw_tables.csv"
PICTURE = Path(__file__).with_name("strength.png")

COLOURS = ["#2f6db3", "#e08020", "#2f9e6e"]
LABELS = {  # and where it stands beside its mark, in points
    "fast": ("cavity, fast", 7, 1),
    "default": ("cavity", 0, -6),
    "hgb": ("HistGradientBoosting", 0, 5),
    "lgbm": ("LightGBM", -6, 4),
    "cat": ("CatBoost", 6, 0),
    "realmlp": ("RealMLP", 0, 5),
    "lr": ("logistic regression", 6, 0),
}
STYLE: dict[Any, Any] = {
    "font.size": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.axisbelow": True,
    "legend.frameon": False,
}
WIDTH = 6.0  # half the side of each map; the rows lie within about 3


def spirals(rows: int = 240) -> tuple[np.ndarray, np.ndarray]:
    """Return three arms of a noisy spiral, one per class."""
    rng = np.random.default_rng(0)
    y = np.arange(rows) % 3
    radius = rng.uniform(0.5, 3.0, rows)
    angle = 2 * np.pi * y / 3 + 1.3 * radius + rng.normal(0, 0.18, rows)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1), y


def draw_map(model: Any, name: str, X: np.ndarray, y: np.ndarray, ax: Axes) -> None:
    """Draw the predicted class as a colour that fades to white as its probability falls
    to 1/3.
    """
    side = np.linspace(-WIDTH, WIDTH, 181)
    grid = np.stack([c.ravel() for c in np.meshgrid(side, side)], 1)
    P = model.predict_proba(grid)
    strength = ((P.max(1) - 1 / 3) / (2 / 3))[:, None]
    colours = np.array(
        [[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in COLOURS]
    )
    image = 1 - 0.8 * strength * (1 - colours[P.argmax(1)])
    ax.imshow(
        image.reshape(len(side), len(side), 3),
        origin="lower",
        extent=(-WIDTH, WIDTH, -WIDTH, WIDTH),
    )
    ax.scatter(*X.T, c=[COLOURS[c] for c in y], s=7, linewidths=0)
    far = np.hypot(*grid.T) > 5
    ax.set_title(name, fontweight="bold", loc="left", fontsize=11.5)
    ax.set_xlabel(
        f"far from the data it is {P[far].max(1).mean():.0%} sure", color="#444444"
    )
    ax.set_xticks([])
    ax.set_yticks([])


def relative_scores() -> dict[str, tuple[float, float]]:
    """Return seconds and NLL of each method relative to HistGradientBoosting: geometric
    means over the tables.
    """
    results = [
        r for r in read_results(RESULTS) if (r.collection, r.use) == ("raw", "report")
    ]
    found = {}
    for m in LABELS:
        seconds = compare(results, m, "hgb", fit_seconds, one_machine=True).values()
        nll = compare(results, m, "hgb", floored_nll).values()
        if seconds and nll:
            found[m] = geometric_mean(seconds).mean, geometric_mean(nll).mean
    return found


def draw_scores(ax: Axes) -> None:
    """Draw one mark per method: seconds to the right, NLL upwards."""
    for method, (seconds, nll) in relative_scores().items():
        label, x, y = LABELS[method]
        ours = label.startswith("cavity")
        colour = COLOURS[0] if ours else "#666666"
        ax.scatter(seconds, nll, color=colour, s=46 if ours else 24, zorder=2)
        ax.annotate(
            label,
            (seconds, nll),
            (x, y),
            textcoords="offset points",
            fontsize=9,
            color=colour,
            ha=("center", "left", "right")[np.sign(x)],
            va=("center", "bottom", "top")[0 if x else np.sign(y)],
            fontweight="bold" if ours else "normal",
        )
    ax.set_xscale("log")
    ax.set_xticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    ax.minorticks_off()
    ax.margins(0.12, 0.1)
    ax.grid(color="#eeeeee")
    ax.set_xlabel("seconds of a fit, relative to the same")
    ax.set_title(
        "NLL relative to HistGradientBoosting",
        fontweight="bold",
        loc="left",
        fontsize=11.5,
    )


def main() -> None:
    """Fit the three models and write the figure."""
    X, y = spirals()
    models = {
        "Logistic regression": LogisticRegression(),
        "Boosted trees": HistGradientBoostingClassifier(random_state=0),
        "cavity": GPClassifier(random_state=0),
    }
    with rc_context(STYLE):
        figure = Figure(figsize=(14, 3.7), layout="constrained")
        axes = figure.subplots(1, 4, width_ratios=[1, 1, 1, 1.25])
        for ax, (name, model) in zip(axes, models.items(), strict=False):
            draw_map(model.fit(X, y), name, X, y, ax)
        draw_scores(axes[3])
        figure.savefig(PICTURE, dpi=100, metadata={"Software": None})


if __name__ == "__main__":
    main()
