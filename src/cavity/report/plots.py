"""Plots of a classifier. They need matplotlib: `pip install "cavity[plot]"`.

Each function draws on the given axes, or on the current ones, and returns them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cavity.common.scoring import BINS, count_confusion
from cavity.common.text_tables import shorten
from cavity.errors import BadInput
from cavity.report.calibration import match_labels, reliability
from cavity.report.colours import COLOURS
from cavity.report.region_plot import NAME_WIDTH, decision_regions, get_axes
from cavity.report.selective import rejection

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "confusion_matrix",
    "decision_regions",
    "learning_curve",
    "rejection_curve",
    "relevance_bars",
    "reliability_diagram",
]

CELLS = 20  # a confusion matrix of more classes has no numbers in its cells
BARS = 20  # number of most relevant columns to draw


def reliability_diagram(
    P: Any, y: Any, ax: Axes | None = None, *, label: str = "", colour: str = COLOURS[0], bins: int = BINS
) -> Axes:
    """Draw accuracy against the probability of the predicted class, with one standard error.

    The area of a point shows the number of rows of its bin. Bins with very few rows are pale and not on the line.

    Parameters
    ----------
    P : array-like of shape (n, C)
        Class probabilities.
    y : array-like of shape (n,)
        True classes: labels if P is a frame with one column per class, otherwise columns of P.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on, by default the current ones of pyplot.
    label, colour : str, optional
        Label for the legend, and colour.
    bins : int, default=10
        Number of equal bins of [0, 1].

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
    table, ax = reliability(P, y, bins), get_axes(ax)
    if not any(line.get_gid() == "diagonal" for line in ax.get_lines()):
        ax.plot([0, 1], [0, 1], color="#999999", lw=1, ls=(0, (4, 3)), gid="diagonal", zorder=1)
    ax.plot(table.confidence[table.many], table.accuracy[table.many], color=colour, lw=1.4, zorder=3)
    for chosen, alpha in ((table.many, 1.0), ((table.rows > 0) & ~table.many, 0.6)):
        x, right = table.confidence[chosen], table.accuracy[chosen]
        ax.vlines(x, table.low[chosen], table.high[chosen], color=colour, lw=1.2, alpha=0.6 * alpha, zorder=2)
        area = 14 + 180 * table.share[chosen]
        ax.scatter(x, right, s=area, color=colour, alpha=alpha, edgecolors="white", linewidths=0.8, zorder=4)
    ax.plot([], [], color=colour, marker="o", markeredgecolor="white", label=label or None)
    ax.set(xlim=(0, 1.03), ylim=(-0.02, 1.03))
    ax.set(xlabel="probability of the predicted class", ylabel="fraction of correct predictions")
    return ax


def learning_curve(
    history: Sequence[Mapping[str, Any]],
    ax: Axes | None = None,
    *,
    rows: int = 1,
    against: str = "seconds",
    label: str = "",
    colour: str = COLOURS[0],
    style: str = "-",
) -> Axes:
    """Draw the training objective against time or epochs.

    Parameters
    ----------
    history : list of dict
        `history_` of a fitted estimator.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on, by default the current ones of pyplot.
    rows : int, default=1
        Number of training rows; the objective is divided by it.
    against : {"seconds", "epoch"}, default="seconds"
        Quantity of the horizontal axis.
    label, colour, style : str, optional
        Label for the legend, colour and style of the line.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cavity import plots
    >>> ax = Figure().subplots()
    >>> history = [{"epoch": 1, "objective": -90.0}, {"epoch": 2, "objective": -40.0}]
    >>> ax = plots.learning_curve(history, ax, against="epoch")
    """
    if not len(history) or against not in history[0]:
        raise BadInput(f"history has no column {against!r}: give clf.history_ of a fitted estimator.")
    ax = get_axes(ax)
    x = np.array([row[against] for row in history], dtype=np.float64)
    value = np.array([row["objective"] for row in history], dtype=np.float64) / rows
    ax.plot(x, value, color=colour, ls=style, lw=1.8, label=label or None)
    ax.set(xlabel=against, ylabel="objective per row" if rows != 1 else "objective")
    return ax


def confusion_matrix(
    y: Any, predicted: Any, ax: Axes | None = None, *, labels: Any = None, colour: str = COLOURS[0]
) -> Axes:
    """Draw the confusion matrix: true classes vertically, predicted classes horizontally.

    The shade is the fraction of the rows of the true class.

    Parameters
    ----------
    y : array-like of shape (n,)
        True labels.
    predicted : array-like of shape (n,)
        Predicted labels.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on, by default the current ones of pyplot.
    labels : array-like, optional
        Classes in the order to draw, by default all that occur.
    colour : str, optional
        Colour.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cavity import plots
    >>> ax = Figure().subplots()
    >>> ax = plots.confusion_matrix(["a", "b", "b"], ["a", "b", "a"], ax)
    """
    y, predicted = np.asarray(y), np.asarray(predicted)
    if y.ndim != 1 or y.shape != predicted.shape or not len(y):
        raise BadInput(f"y has shape {y.shape}, predicted {predicted.shape}; both must be (n,), with n > 0.")
    names = np.unique(np.concatenate([y, predicted])) if labels is None else np.asarray(labels)
    ax, C = get_axes(ax), len(names)
    counts = count_confusion(match_labels(y, names), match_labels(predicted, names), C)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("shades", ["#ffffff", colour])
    ax.imshow(share, cmap=shades, vmin=0, vmax=1, aspect="equal", interpolation="nearest")
    if C <= CELLS:
        size = 9 if C <= 12 else 7
        for i, j in np.argwhere(counts):
            ink = "white" if share[i, j] > 0.55 else "#222222"
            ax.text(j, i, f"{counts[i, j]}", ha="center", va="center", color=ink, fontsize=size)
        ticks = [shorten(f"{name}", NAME_WIDTH) for name in names]
        ax.set_xticks(range(C), ticks, rotation=90 if C > 5 else 0, parse_math=False)
        ax.set_yticks(range(C), ticks, parse_math=False)
    ax.grid(False)
    ax.set(xlabel="predicted class", ylabel="true class")
    return ax


def relevance_bars(
    relevance: Any, ax: Axes | None = None, *, names: Any = None, most: int = BARS, colour: str = COLOURS[0]
) -> Axes:
    """Draw the relevance of the columns as bars, the largest on top.

    Parameters
    ----------
    relevance : array-like of shape (D,)
        `feature_relevance_` of a fitted estimator.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on, by default the current ones of pyplot.
    names : array-like of shape (D,), optional
        Names of the columns, by default their numbers.
    most : int, default=20
        Maximum number of bars.
    colour : str, optional
        Colour.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cavity import plots
    >>> ax = Figure().subplots()
    >>> ax = plots.relevance_bars([0.7, 0.3], ax, names=["mass", "bill"])
    """
    if relevance is None:
        raise BadInput("feature_relevance_ is None: the kernel has no lengthscales, so no relevance to draw.")
    relevance = np.asarray(relevance, dtype=np.float64)
    names = np.arange(relevance.size) if names is None else np.asarray(names)
    if relevance.ndim != 1 or names.shape != relevance.shape:
        shapes = f"relevance has shape {relevance.shape}, names {names.shape}"
        raise BadInput(f"{shapes}; give one of each per column.")
    ax = get_axes(ax)
    best = np.argsort(-relevance, kind="stable")[:most][::-1]
    ax.barh(range(len(best)), relevance[best], color=colour, height=0.7)
    ax.set_yticks(range(len(best)), [shorten(f"{names[k]}", 2 * NAME_WIDTH) for k in best], parse_math=False)
    ax.set(xlim=(0, None), xlabel="relevance")
    return ax


def rejection_curve(
    P: Any,
    y: Any,
    ax: Axes | None = None,
    *,
    certainty: Any = None,
    label: str = "",
    colour: str = COLOURS[0],
    style: str = "-",
) -> Axes:
    """Draw the error of the kept rows against the fraction of rejected rows, the least certain first.

    Parameters
    ----------
    P, y : array-like
        As for `reliability_diagram`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on, by default the current ones of pyplot.
    certainty : array-like of shape (n,), optional
        Certainty of each row, by default the probability of the predicted class.
    label, colour, style : str, optional
        Label for the legend, colour and style of the line.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cavity import plots
    >>> ax = Figure().subplots()
    >>> ax = plots.rejection_curve([[0.9, 0.1], [0.6, 0.4]], [0, 1], ax)
    """
    curve, ax = rejection(P, y, certainty), get_axes(ax)
    x, error = np.append(curve.rejected, 1.0), np.append(curve.error, curve.error[-1])
    ax.plot(x, error, drawstyle="steps-post", color=colour, ls=style, lw=1.6, label=label or None)
    ax.set(xlim=(0, 1), ylim=(0, None), ylabel="error of the kept rows")
    ax.set(xlabel="fraction of rejected rows, least certain first")
    return ax
