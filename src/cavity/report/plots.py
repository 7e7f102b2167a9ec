"""Plots of a classifier. They need matplotlib: `pip install "cavity[plot]"`.

Each function draws on the given axes, or on the current ones, and returns them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cavity.common.scoring import Reliability
from cavity.common.text_tables import shorten
from cavity.common.types import Floats
from cavity.errors import BadInput, missing_extra
from cavity.estimators.classifier import GPClassifier
from cavity.estimators.fitted_view import view_fit
from cavity.report.calibration import reliability
from cavity.report.colours import COLOURS, GREY, choose_colours
from cavity.report.detection import detection
from cavity.tables.validation import Prepared

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["decision_regions", "gain", "precision_recall", "reliability_diagram"]

GRID = 120  # points per side of the grid on which regions are evaluated
PALE = 0.55  # fraction of white in the colours of regions
NAME_WIDTH = 16  # letters of a class in the legend
MOST_INSIDE = 4  # classes of a legend inside the plot
MOST_DOUBT = 0.95  # no boundary is drawn above it
DASHES = (0, (4, 3))
USUAL = 95  # percentile of the training rows; their doubt is 0


def reliability_diagram(
    P: Any,
    y: Any,
    ax: Axes | None = None,
    *,
    label: str = "",
    colour: str = COLOURS[0],
    positive: Any = None,
) -> Axes:
    """Draw accuracy against the probability of the predicted class.

    With `positive`, draw how often rows are of this class against its probability.
    Whiskers are one standard error. The area of a point shows the number of rows of its
    bin. Bins with very few rows are pale and not on the line.

    Parameters
    ----------
    P : array-like of shape (n, C)
        Class probabilities.
    y : array-like of shape (n,)
        True classes: labels if P is a frame with one column per class, otherwise
        columns of P.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on, by default the current ones of pyplot.
    label, colour : str, optional
        Label for the legend, and colour.
    positive : label, optional
        The class to draw, a column of P. By default the predicted class of each row.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cavity import plots
    >>> ax = Figure().subplots()
    >>> ax = plots.reliability_diagram([[0.9, 0.1], [0.3, 0.7]], [0, 0], ax, label="model")
    """
    table = reliability(P, y, positive=positive)
    ax = _get_axes(ax)
    if not any(line.get_gid() == "diagonal" for line in ax.get_lines()):
        ax.plot(
            [0, 1], [0, 1], gid="diagonal", zorder=1, color="#999999", lw=1, ls=DASHES
        )
    many = table.many
    ax.plot(
        table.confidence[many], table.accuracy[many], color=colour, lw=1.4, zorder=3
    )
    _draw_bins(table, colour, ax)
    ax.plot(
        [], [], label=label or None, color=colour, marker="o", markeredgecolor="white"
    )
    ax.set(xlim=(0, 1.03), ylim=(-0.02, 1.03))
    what = ("probability of the predicted class", "fraction of correct predictions")
    if positive is not None:
        what = (f"probability of {positive}", f"fraction of rows of {positive}")
    ax.set_xlabel(what[0], parse_math=False)
    ax.set_ylabel(what[1], parse_math=False)
    return ax


def _draw_bins(table: Reliability, colour: str, ax: Axes) -> None:
    """Draw a dot and a whisker per bin with rows; few rows are pale."""
    k = np.flatnonzero(table.rows)
    alpha: Any = np.where(table.many[k], 1.0, 0.6)
    x = table.confidence[k]
    ax.vlines(
        x,
        table.low[k],
        table.high[k],
        color=colour,
        lw=1.2,
        alpha=0.6 * alpha,
        zorder=2,
    )
    ax.scatter(
        x,
        table.accuracy[k],
        s=14 + 180 * table.share[k],
        color=colour,
        alpha=alpha,
        edgecolors="white",
        linewidths=0.8,
        zorder=4,
    )


def precision_recall(
    P: Any, y: Any, positive: Any, ax: Axes | None = None, *, label: str = ""
) -> Axes:
    """Draw the precision of one class against its recall, over all thresholds.

    Parameters
    ----------
    P, y : array-like
        As for `reliability_diagram`.
    positive : label
        The class, a column of P.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on, by default the current ones of pyplot.
    label : str, optional
        Label for the legend.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cavity import plots
    >>> ax = Figure().subplots()
    >>> ax = plots.precision_recall([[0.9, 0.1], [0.3, 0.7]], [0, 1], 1, ax)
    """
    found = detection(P, y, positive)
    ax = _get_axes(ax)
    ax.axhline(found.share, color=GREY, lw=1, ls=DASHES)
    ax.plot(found.recall, found.precision, lw=1.4, label=label or None)
    ax.set(xlim=(0, 1.03), ylim=(-0.02, 1.03), xlabel="recall", ylabel="precision")
    return ax


def gain(
    P: Any, y: Any, positive: Any, ax: Axes | None = None, *, label: str = ""
) -> Axes:
    """Draw the share of one class among the rows with its largest probabilities.

    Parameters
    ----------
    P, y : array-like
        As for `reliability_diagram`.
    positive : label
        The class, a column of P.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on, by default the current ones of pyplot.
    label : str, optional
        Label for the legend.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cavity import plots
    >>> ax = Figure().subplots()
    >>> ax = plots.gain([[0.9, 0.1], [0.3, 0.7]], [0, 1], 1, ax)
    """
    found = detection(P, y, positive)
    ax = _get_axes(ax)
    ax.plot([0, 1], [0, 1], color=GREY, lw=1, ls=DASHES)
    ax.plot([0, *found.selected], [0, *found.recall], lw=1.4, label=label or None)
    ax.set(xlim=(0, 1), ylim=(0, 1.03), xlabel="fraction of rows looked at")
    ax.set_ylabel(f"fraction of {positive} found", parse_math=False)
    return ax


def decision_regions(
    clf: Any,
    X: Any,
    y: Any,
    ax: Axes | None = None,
    *,
    grid: int = GRID,
    show_inducing: bool = False,
) -> Axes:
    """Draw class probabilities over the plane as mixed colours.

    Decision boundaries and rows are drawn on top. Where a `GPClassifier` has seen no
    rows, the colours fade to white, as trees lose their weight in its pool. The legend
    names up to 16 classes; it stands outside the plot if there are more than four.

    Parameters
    ----------
    clf : classifier
        Fitted classifier of two features.
    X, y : array-like of shape (n, 2), array-like of shape (n,)
        Rows to draw, and their labels. Rows set the range of the plot. The columns of a
        frame name the axes.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on, by default the current ones of pyplot.
    grid : int, default=120
        Points per side of the grid on which probabilities are evaluated.
    show_inducing : bool, default=False
        Draw the inducing points of `clf` as crosses.

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
    >>> training = Training(tol=1.0)
    >>> clf = GPClassifier("sep", n_inducing=5, training=training, random_state=0)
    >>> clf = clf.fit(X[:, :2], y)
    >>> ax = plots.decision_regions(clf, X[:, :2], y, Figure().subplots(), grid=20)
    """
    names = getattr(X, "columns", None)
    X = np.asarray(X, dtype=np.float64)
    y = np.asarray(y)
    if X.ndim != 2 or X.shape[1] != 2:
        raise BadInput(
            f"decision regions need X with two columns, but X has shape {X.shape}."
        )

    ax = _get_axes(ax)
    low = X.min(0)
    high = X.max(0)
    pad = 0.05 * np.where(high > low, high - low, 1.0)
    across, up = np.linspace(low - pad, high + pad, grid).T
    _draw_probabilities(clf, across, up, ax)
    if show_inducing:
        _draw_inducing(getattr(clf, "inducing_points_", ()), ax)
    _draw_rows(clf.classes_, X, y, ax)
    if names is not None:
        ax.set_xlabel(f"{names[0]}", parse_math=False)
        ax.set_ylabel(f"{names[1]}", parse_math=False)
    ax.set(xlim=across[[0, -1]], ylim=up[[0, -1]])
    return ax


def _draw_inducing(Z: Any, ax: Axes) -> None:
    if np.size(Z):
        x, height = np.asarray(Z).reshape(-1, 2).T
        look: Any = {"s": 14, "c": GREY, "marker": "x", "linewidths": 0.7, "zorder": 2}
        ax.scatter(x, height, label="inducing points", **look)


def _draw_rows(classes: Any, X: Floats, y: Any, ax: Axes) -> None:
    """Draw rows in the colours of their classes, with a legend."""
    look: Any = {"s": 18, "edgecolors": "white", "linewidths": 0.5, "zorder": 4}
    for label, colour in zip(classes, choose_colours(len(classes)), strict=True):
        name = shorten(f"{label}", NAME_WIDTH).replace("$", r"\$")
        x, height = X[y == label].T
        ax.scatter(x, height, color=colour, label=name, **look)

    if len(classes) <= len(COLOURS):
        where: Any = {"loc": "best"}
        if len(classes) > MOST_INSIDE:
            where = {"loc": "upper left", "bbox_to_anchor": (1, 1)}
        ax.legend(fontsize="small", framealpha=0.85, **where)


def _draw_probabilities(clf: Any, across: Floats, up: Floats, ax: Axes) -> None:
    """Draw the classes as mixed colours on a grid, and the boundaries between them."""
    from matplotlib.colors import to_rgb

    palette = np.array([to_rgb(colour) for colour in choose_colours(len(clf.classes_))])
    shape = (len(up), len(across), -1)
    plane: Any = np.column_stack([axis.ravel() for axis in np.meshgrid(across, up)])
    if isinstance(clf, GPClassifier):
        # the plane is in prepared features, and columns of the model may have names
        plane = Prepared(plane)
    P = np.asarray(clf.predict_proba(plane))
    doubt = np.broadcast_to(_find_doubt(clf, plane), (len(P), 1))
    shades = P @ (palette + PALE * (1 - palette))
    shades += (1 - shades) * doubt
    extent = (across[0], across[-1], up[0], up[-1])
    image: Any = {"origin": "lower", "aspect": "auto", "interpolation": "bilinear"}
    ax.imshow(shades.clip(0, 1).reshape(shape), extent=extent, **image)
    known = np.where(doubt < MOST_DOUBT, P, np.nan).reshape(shape)
    border: Any = {"levels": [0.0], "colors": GREY, "linewidths": 1.0, "zorder": 3}
    for k in range(len(palette)):  # the border is where the lead over others is zero
        lead = known[:, :, k] - np.delete(known, k, axis=2).max(2)
        if (lead < 0).any() and (lead > 0).any():
            ax.contour(across, up, lead, **border)


def _find_doubt(clf: Any, plane: Any) -> Any:
    """Return 1 − g(x) of a pool's gate, [n 1].

    It is 0 where f is known as well as at training rows, and 1 where nothing is known.
    """
    if not isinstance(clf, GPClassifier):
        return 0.0

    novelty = view_fit(clf).novelty
    if novelty is None:
        return 0.0

    usual = novelty.quantiles[USUAL]
    if not usual < 1:
        return 0.0

    _, var = clf.predict_latent(plane)
    u = var.reshape(len(var), -1) @ novelty.scale[:, None]
    return ((u - usual) / (1 - usual)).clip(0, 1)


def _get_axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax

    try:
        from matplotlib import pyplot
    except ModuleNotFoundError:
        raise missing_extra("matplotlib", "plot") from None

    return pyplot.gca()
