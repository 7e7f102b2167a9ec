"""The plot of a classifier of two features over the plane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cavity.common.text_tables import shorten
from cavity.errors import BadInput, missing_extra
from cavity.estimators.classifier import GPClassifier
from cavity.estimators.fitted_view import view_fit
from cavity.report.calibration import Array
from cavity.report.colours import COLOURS, GREY, choose_colours
from cavity.rows.frames import Prepared

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GRID = 120  # points per side of the grid on which regions are evaluated
PALE = 0.55  # fraction of white in the colours of regions
NAME_WIDTH, MOST_INSIDE = 16, 4  # letters of a class, and entries, of the legend inside the plot
MOST_DOUBT = 0.95  # from which on there is no boundary
USUAL = 95  # per cent of training rows that the model knows as well


def get_axes(ax: Axes | None) -> Axes:
    """Return the given axes, or the current ones of pyplot."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError:
        raise missing_extra("matplotlib", "plot") from None
    return pyplot.gca()


def decision_regions(
    clf: Any,
    X: Any,
    y: Any,
    ax: Axes | None = None,
    *,
    grid: int = GRID,
    show_inducing: bool = False,
    legend: bool = True,
) -> Axes:
    """Draw class probabilities over the plane as mixed colours, with decision boundaries and rows.

    A `GPClassifier` knows where it has seen nothing: there the colours fade to white, as the trees of its pool count less.

    Parameters
    ----------
    clf : classifier
        Fitted classifier of two features.
    X : array-like of shape (n, 2)
        Rows to draw. They also set the range of the plot. The columns of a frame name the axes.
    y : array-like of shape (n,)
        Labels of the rows.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on, by default the current ones of pyplot.
    grid : int, default=120
        Number of points per side of the grid on which probabilities are evaluated.
    show_inducing : bool, default=False
        Draw the inducing points of `clf` as crosses.
    legend : bool, default=True
        Name the classes, if there are at most 16: more repeat colours. More than four are named beside the plot.

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
    names, X, y = getattr(X, "columns", None), np.asarray(X, dtype=np.float64), np.asarray(y)
    if X.ndim != 2 or X.shape[1] != 2:
        raise BadInput(f"decision regions need X with two columns, but X has shape {X.shape}.")
    ax = get_axes(ax)
    from matplotlib.colors import to_rgb

    palette = np.array([to_rgb(name) for name in choose_colours(len(clf.classes_))])
    low, high = X.min(0), X.max(0)
    pad = 0.05 * np.where(high > low, high - low, 1.0)
    (left, bottom), (right, top) = low - pad, high + pad
    across, up = np.linspace(left, right, grid), np.linspace(bottom, top, grid)
    plane: Any = np.column_stack([axis.ravel() for axis in np.meshgrid(across, up)])
    if isinstance(clf, GPClassifier):
        plane = Prepared(plane)  # X is what `preparation_` makes of the rows, and its columns may have names
    P = np.asarray(clf.predict_proba(plane))
    doubt = np.broadcast_to(_find_doubt(clf, plane), (len(P), 1))
    shades = P @ (palette + PALE * (1 - palette))
    shades += (1 - shades) * doubt
    extent, image = (left, right, bottom, top), shades.clip(0, 1).reshape(grid, grid, 3)
    ax.imshow(image, extent=extent, origin="lower", aspect="auto", interpolation="bilinear")
    known = np.where(doubt < MOST_DOUBT, P, np.nan)
    _draw_boundaries(known.reshape(grid, grid, -1), across, up, ax)
    Z = getattr(clf, "inducing_points_", None) if show_inducing else None
    if Z is not None and np.size(Z):
        x, up = np.asarray(Z).reshape(-1, 2).T
        ax.scatter(x, up, s=14, c=GREY, marker="x", linewidths=0.7, zorder=2, label="inducing points")
    for c, label in enumerate(clf.classes_):
        of: Any = {"color": palette[c], "edgecolors": "white", "linewidths": 0.5}
        across, up = X[y == label].T
        ax.scatter(
            across, up, s=18, **of, zorder=4, label=shorten(f"{label}", NAME_WIDTH).replace("$", r"\$")
        )
    if legend and len(clf.classes_) <= len(COLOURS):
        where: Any = {"loc": "best"}
        if len(clf.classes_) > MOST_INSIDE:
            where = {"loc": "upper left", "bbox_to_anchor": (1, 1)}
        ax.legend(fontsize="small", framealpha=0.85, **where)
    if names is not None:
        ax.set_xlabel(f"{names[0]}", parse_math=False)
        ax.set_ylabel(f"{names[1]}", parse_math=False)
    ax.set(xlim=(left, right), ylim=(bottom, top))
    return ax


def _find_doubt(clf: Any, plane: Any) -> Any:
    """Return 1 − g(x) of a pool's gate, [n 1]: 0 where f is known as well as at training rows, 1 where it is not known at all."""
    novelty = view_fit(clf).novelty if isinstance(clf, GPClassifier) else None
    if novelty is None or not (usual := novelty.quantiles[USUAL]) < 1:
        return 0.0
    u = clf.predict_latent(plane)[1] @ novelty.scale[:, None]
    return ((u - usual) / (1 - usual)).clip(0, 1)


def _draw_boundaries(P: Array, across: Array, up: Array, ax: Axes) -> None:
    """Draw the decision boundary of each class: the zero line of its lead over the next class."""
    for k in range(P.shape[2]):
        lead = P[:, :, k] - np.delete(P, k, axis=2).max(2)
        if (lead < 0).any() and (lead > 0).any():
            ax.contour(across, up, lead, levels=[0.0], colors=GREY, linewidths=1.0, zorder=3)
