"""Draw the README's figure: what three models believe far from their data.

python docs/figures/strength.py
"""

from __future__ import annotations

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

PICTURE = Path(__file__).with_name("strength.png")

COLOURS = ["#2f6db3", "#e08020", "#2f9e6e"]
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


def main() -> None:
    """Fit the three models and write the figure."""
    X, y = spirals()
    models = {
        "Logistic regression": LogisticRegression(),
        "Boosted trees": HistGradientBoostingClassifier(random_state=0),
        "cavity": GPClassifier(random_state=0),
    }
    with rc_context(STYLE):
        figure = Figure(figsize=(10.5, 3.9), layout="constrained")
        axes = figure.subplots(1, 3)
        for ax, (name, model) in zip(axes, models.items(), strict=True):
            draw_map(model.fit(X, y), name, X, y, ax)
        figure.savefig(PICTURE, dpi=100, metadata={"Software": None})


if __name__ == "__main__":
    main()
