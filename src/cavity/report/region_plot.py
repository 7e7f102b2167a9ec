"""The plot of a classifier of two features over the plane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cavity.errors import BadInput, missing_extra
from cavity.report.calibration import Array
from cavity.report.colours import GREY, choose_colours
from cavity.rows.frames import Prepared

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GRID = 120  # points per side of the grid on which regions are evaluated
PALE = 0.62  # fraction of white in the colours of regions


def get_axes(ax: Axes | None) -> Axes:
    """Return the given axes, or the current ones of pyplot."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError:
        raise missing_extra("matplotlib", "plot") from None
    return pyplot.gca()


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
    from matplotlib.colors import to_rgb

    palette = np.array([to_rgb(name) for name in choose_colours(len(clf.classes_))])
    low, high = X.min(0), X.max(0)
    pad = 0.03 * np.where(high > low, high - low, 1.0)
    (left, bottom), (right, top) = low - pad, high + pad
    across, up = np.linspace(left, right, grid), np.linspace(bottom, top, grid)
    plane = np.column_stack([axis.ravel() for axis in np.meshgrid(across, up)])
    prepared = getattr(clf, "preparation_", None) is not None  # then X is what it makes of the rows
    P = np.asarray(clf.predict_proba(Prepared(plane) if prepared else plane))
    shades = (P @ (palette + PALE * (1 - palette))).clip(0, 1).reshape(grid, grid, 3)
    extent = (left, right, bottom, top)
    ax.imshow(shades, extent=extent, origin="lower", aspect="auto", interpolation="bilinear")
    _draw_boundaries(P.reshape(grid, grid, -1), across, up, ax)
    place = np.searchsorted(clf.classes_, y)
    ax.scatter(X[:, 0], X[:, 1], c=palette[place], s=7, alpha=0.75, linewidths=0, zorder=2)
    Z = getattr(clf, "inducing_points_", None)
    if Z is not None and np.size(Z):
        _draw_inducing(np.asarray(Z), palette, ax)
    ax.set(xlim=(left, right), ylim=(bottom, top))
    return ax


def _draw_boundaries(P: Array, across: Array, up: Array, ax: Axes) -> None:
    """Draw the decision boundary of each class: the zero line of its lead over the next class."""
    for k in range(P.shape[2]):
        lead = P[:, :, k] - np.delete(P, k, axis=2).max(2)
        if lead.min() < 0 < lead.max():
            ax.contour(across, up, lead, levels=[0.0], colors=GREY, linewidths=1.3, zorder=3)


def _draw_inducing(Z: Array, palette: Array, ax: Axes) -> None:
    for c, points in enumerate(Z):
        fill = palette[c] if len(Z) > 1 else "white"  # two classes share one latent function
        x, y = points.T
        ax.scatter(x, y, s=46, color="white", edgecolors="black", linewidths=1.0, zorder=4)
        ax.scatter(x, y, s=16, color=fill, linewidths=0, zorder=5)
