"""The plot of a classifier of two features over the plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cavity.errors import BadInput
from cavity.report.calibration import Array
from cavity.report.colours import GREY, choose_colours
from cavity.report.score_plots import get_axes
from cavity.rows.frames import Prepared

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GRID = 120  # points per side of the grid on which regions are evaluated
PALE = 0.62  # fraction of white in the colours of regions


def decision_regions(clf: Any, X: Any, y: Any, ax: Axes | None = None, *, grid: int = GRID) -> Axes:
    """Draw class probabilities over the plane as mixed colours, with decision boundaries and rows.

    Inducing points, if `clf` has any, are rings in the colour of their class.

    Parameters
    ----------
    clf : classifier
        Fitted classifier of two features.
    X : array-like of shape (n, 2)
        Rows to draw. They also set the range of the plot.
    y : array-like of shape (n,)
        Labels of the rows.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on, by default the current ones of pyplot.
    grid : int, default=120
        Number of points per side of the grid on which probabilities are evaluated.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier, Training, plots
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier("sep", n_inducing=5, training=Training(tol=1.0), random_state=0).fit(X[:, :2], y)
    >>> ax = plots.decision_regions(clf, X[:, :2], y, Figure().subplots(), grid=20)
    """
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or X.shape[1] != 2:
        raise BadInput(f"decision regions need X with two columns, but X has shape {X.shape}.")
    ax = get_axes(ax)
    palette = _to_rgb(choose_colours(len(clf.classes_)))
    box = _find_box(X)
    plane, across, up = _make_grid(box, grid)
    prepared = getattr(clf, "preparation_", None) is not None  # then X is what it makes of the rows
    P = np.asarray(clf.predict_proba(Prepared(plane) if prepared else plane))
    pale = palette + PALE * (1 - palette)
    ax.imshow(
        (P @ pale).clip(0, 1).reshape(grid, grid, 3),
        extent=(box[0], box[1], box[2], box[3]),
        origin="lower",
        aspect="auto",
        interpolation="bilinear",
    )
    _draw_boundaries(P.reshape(grid, grid, -1), across, up, ax)
    place = np.searchsorted(clf.classes_, y)
    ax.scatter(X[:, 0], X[:, 1], c=palette[place], s=7, alpha=0.75, linewidths=0, zorder=2)
    Z = getattr(clf, "inducing_points_", None)
    if Z is not None and np.size(Z):
        _draw_inducing(np.asarray(Z), palette, ax)
    ax.set_xlim(box[0], box[1])
    ax.set_ylim(box[2], box[3])
    return ax


def _to_rgb(names: Sequence[str]) -> Array:
    from matplotlib.colors import to_rgb

    return np.array([to_rgb(name) for name in names])


def _find_box(X: Array) -> tuple[float, float, float, float]:
    """Return left, right, bottom and top of the rows, with a small margin."""
    low, high = X.min(0), X.max(0)
    pad = 0.03 * np.where(high > low, high - low, 1.0)
    return float(low[0] - pad[0]), float(high[0] + pad[0]), float(low[1] - pad[1]), float(high[1] + pad[1])


def _make_grid(box: tuple[float, float, float, float], grid: int) -> tuple[Array, Array, Array]:
    """Return the points of the grid as rows, and the coordinates of both axes."""
    across, up = np.linspace(box[0], box[1], grid), np.linspace(box[2], box[3], grid)
    xx, yy = np.meshgrid(across, up)
    return np.column_stack([xx.ravel(), yy.ravel()]), across, up


def _draw_boundaries(P: Array, across: Array, up: Array, ax: Axes) -> None:
    """Draw the decision boundary of each class: the zero line of its lead over the next class."""
    for k in range(P.shape[2]):
        lead = P[:, :, k] - np.delete(P, k, axis=2).max(2)
        if lead.min() < 0 < lead.max():
            ax.contour(across, up, lead, levels=[0.0], colors=GREY, linewidths=1.3, zorder=3)


def _draw_inducing(Z: Array, palette: Array, ax: Axes) -> None:
    for c, points in enumerate(Z):
        fill = palette[c] if len(Z) > 1 else "white"  # two classes share one latent function
        ax.scatter(
            points[:, 0], points[:, 1], s=46, color="white", edgecolors="black", linewidths=1.0, zorder=4
        )
        ax.scatter(points[:, 0], points[:, 1], s=16, color=fill, linewidths=0, zorder=5)
