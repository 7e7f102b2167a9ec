"""Pictures of a classifier: each function draws on the axis it is given (or on the current one) and returns it.

matplotlib is an extra: `pip install cavity[plot]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadInput, BadOption
from cavity.report.calibration import BINS, Array, reliability
from cavity.report.selective import rejection

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Told apart by most colour-blind readers, and in grey.
COLOURS = (
    "#2f6db3",
    "#e08214",
    "#3a9b6f",
    "#b2365c",
    "#7a5bb0",
    "#8c6d46",
    "#d37fb6",
    "#6b6b6b",
    "#b5a832",
    "#27a0ad",
)
GREY = "#444444"
GRID = 120  # points a side at which regions are evaluated
FEW = 5  # rows below which a bin of the reliability diagram is drawn pale, off the line
PALE = 0.62  # how far a region's colour is moved towards white
CELLS = 20  # classes up to which a confusion matrix has its numbers written into it
BARS = 20  # columns that are drawn of a relevance, the largest


def axis(ax: Axes | None) -> Axes:
    """The axis to draw on: the one given, or pyplot's current one."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError:
        raise BadOption("plots need matplotlib, which is not installed: pip install cavity[plot]") from None
    return pyplot.gca()


def colours(n: int) -> list[str]:
    """One colour a class, repeated beyond ten."""
    return [COLOURS[k % len(COLOURS)] for k in range(n)]


def decision_regions(clf: Any, X: Any, y: Any, ax: Axes | None = None, *, grid: int = GRID) -> Axes:
    """Class probabilities over the plane as mixed colours, the boundaries of predicted classes, the rows.

    Inducing points, if `clf` has any (a sparse spectrum has none), are rings around the colour of the class they serve.
    """
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or X.shape[1] != 2:
        raise BadInput(f"decision regions need two columns, X has shape {X.shape}.")
    ax = axis(ax)
    palette = _rgb(colours(len(clf.classes_)))
    box = _box(X)
    plane, across, up = _plane(box, grid)
    P = np.asarray(clf.predict_proba(plane))
    pale = palette + PALE * (1 - palette)
    ax.imshow(
        (P @ pale).clip(0, 1).reshape(grid, grid, 3),
        extent=(box[0], box[1], box[2], box[3]),
        origin="lower",
        aspect="auto",
        interpolation="bilinear",
    )
    _boundaries(P.reshape(grid, grid, -1), across, up, ax)
    place = np.searchsorted(clf.classes_, y)
    ax.scatter(X[:, 0], X[:, 1], c=palette[place], s=7, alpha=0.75, linewidths=0, zorder=2)
    Z = getattr(clf, "inducing_points_", None)
    if Z is not None and np.size(Z):
        _inducing(np.asarray(Z), palette, ax)
    ax.set_xlim(box[0], box[1])
    ax.set_ylim(box[2], box[3])
    return ax


def _rgb(names: Sequence[str]) -> Array:
    from matplotlib.colors import to_rgb

    return np.array([to_rgb(name) for name in names])


def _box(X: Array) -> tuple[float, float, float, float]:
    """Left, right, bottom, top, with a small margin."""
    low, high = X.min(0), X.max(0)
    pad = 0.03 * np.where(high > low, high - low, 1.0)
    return float(low[0] - pad[0]), float(high[0] + pad[0]), float(low[1] - pad[1]), float(high[1] + pad[1])


def _plane(box: tuple[float, float, float, float], grid: int) -> tuple[Array, Array, Array]:
    """Every point of the grid as a row, and its coordinates across and up."""
    across, up = np.linspace(box[0], box[1], grid), np.linspace(box[2], box[3], grid)
    xx, yy = np.meshgrid(across, up)
    return np.column_stack([xx.ravel(), yy.ravel()]), across, up


def _boundaries(P: Array, across: Array, up: Array, ax: Axes) -> None:
    """Where a class stops being the most probable: the zero line of its lead over the best rival."""
    for k in range(P.shape[2]):
        lead = P[:, :, k] - np.delete(P, k, axis=2).max(2)
        if lead.min() < 0 < lead.max():
            ax.contour(across, up, lead, levels=[0.0], colors=GREY, linewidths=1.3, zorder=3)


def _inducing(Z: Array, palette: Array, ax: Axes) -> None:
    for c, points in enumerate(Z):
        fill = palette[c] if len(Z) > 1 else "white"  # two classes share one latent function
        ax.scatter(
            points[:, 0], points[:, 1], s=46, color="white", edgecolors="black", linewidths=1.0, zorder=4
        )
        ax.scatter(points[:, 0], points[:, 1], s=16, color=fill, linewidths=0, zorder=5)


def reliability_diagram(
    P: Any, y: Any, ax: Axes | None = None, *, label: str = "", colour: str = COLOURS[0], bins: int = BINS
) -> Axes:
    """Accuracy against the probability of the predicted class, with one standard error.

    The area of a point shows the number of its rows; bins with very few are pale and off the line.
    """
    table, ax = reliability(P, y, bins), axis(ax)
    if not any(line.get_gid() == "diagonal" for line in ax.get_lines()):
        ax.plot([0, 1], [0, 1], color="#999999", lw=1, ls=(0, (4, 3)), gid="diagonal", zorder=1)
    many = table.rows >= FEW
    ax.plot(table.confidence[many], table.accuracy[many], color=colour, lw=1.4, zorder=3)
    for chosen, alpha in ((many, 1.0), ((table.rows > 0) & ~many, 0.35)):
        x, right, n = table.confidence[chosen], table.accuracy[chosen], table.rows[chosen]
        low, high = _standard_error(right, n)
        ax.vlines(x, low, high, color=colour, lw=1.2, alpha=0.6 * alpha, zorder=2)
        area = 14 + 180 * n / table.rows.sum()
        ax.scatter(x, right, s=area, color=colour, alpha=alpha, edgecolors="white", linewidths=0.8, zorder=4)
    ax.plot([], [], color=colour, marker="o", markeredgecolor="white", label=label or None)
    ax.set_xlim(0, 1.03)
    ax.set_ylim(-0.02, 1.03)
    ax.set_xlabel("probability of the predicted class")
    ax.set_ylabel("share of predictions that are right")
    return ax


def _standard_error(share: Array, n: NDArray[np.int64]) -> tuple[Array, Array]:
    """One standard error around a share of n rows, two right and two wrong ones added (Agresti, Coull)."""
    centre = (share * n + 2) / (n + 4)
    spread = np.sqrt(centre * (1 - centre) / (n + 4))
    return np.minimum(share, centre - spread), np.maximum(share, centre + spread)


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
    """The objective of each epoch, per row of the training set, against "seconds" or "epoch"."""
    if not len(history) or against not in history[0]:
        raise BadInput(f"a history with the column {against!r} is needed, such as clf.history_ after fit.")
    ax = axis(ax)
    x = np.array([row[against] for row in history], dtype=np.float64)
    value = np.array([row["objective"] for row in history], dtype=np.float64) / rows
    ax.plot(x, value, color=colour, ls=style, lw=1.8, label=label or None)
    ax.set_xlabel(against)
    ax.set_ylabel("objective per row" if rows != 1 else "objective")
    return ax


def confusion_matrix(
    y: Any, predicted: Any, ax: Axes | None = None, *, labels: Any = None, colour: str = COLOURS[0]
) -> Axes:
    """How many rows of each true class (down) were given each class (across); the shade is the share of the true class.

    `labels` gives classes and their order, by default all that occur.
    """
    y, predicted = np.asarray(y), np.asarray(predicted)
    if y.ndim != 1 or y.shape != predicted.shape or not len(y):
        raise BadInput(
            f"y has shape {y.shape} and predicted {predicted.shape}; both must be (n,), with n > 0."
        )
    names = np.unique(np.concatenate([y, predicted])) if labels is None else np.asarray(labels)
    counts = confusion(y, predicted, names)
    ax, C = axis(ax), len(names)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    ax.imshow(share, cmap=_shades(colour), vmin=0, vmax=1, aspect="equal", interpolation="nearest")
    if C <= CELLS:
        for i, j in np.argwhere(counts):
            ink = "white" if share[i, j] > 0.55 else "#222222"
            ax.text(
                j, i, f"{counts[i, j]}", ha="center", va="center", color=ink, fontsize=9 if C <= 12 else 7
            )
        ax.set_xticks(range(C), [str(name) for name in names], rotation=90 if C > 5 else 0, parse_math=False)
        ax.set_yticks(range(C), [str(name) for name in names], parse_math=False)
    ax.grid(False)
    ax.set_xlabel("predicted class")
    ax.set_ylabel("true class")
    return ax


def confusion(y: NDArray[Any], predicted: NDArray[Any], names: NDArray[Any]) -> NDArray[np.int64]:
    """Rows of each pair of true and predicted class, [C C], in the order of `names`."""
    place = {name: k for k, name in enumerate(names.tolist())}
    unknown = set(y.tolist()) | set(predicted.tolist())
    unknown -= place.keys()
    if unknown:
        raise BadInput(f"the label {sorted(map(str, unknown))[0]!r} is not among labels={names.tolist()}.")
    counts = np.zeros((len(names), len(names)), dtype=np.int64)
    for pair in zip(y.tolist(), predicted.tolist(), strict=True):
        counts[place[pair[0]], place[pair[1]]] += 1
    return counts


def _shades(colour: str) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("shades", ["#ffffff", colour])


def relevance_bars(
    relevance: Any,
    ax: Axes | None = None,
    *,
    names: Any = None,
    most: int = BARS,
    colour: str = COLOURS[0],
) -> Axes:
    """Bars of `clf.feature_relevance_`, the largest on top; `names` of the columns, by default their numbers."""
    if relevance is None:
        raise BadInput("this kernel has no relevance of columns: feature_relevance_ is None.")
    relevance = np.asarray(relevance, dtype=np.float64)
    names = np.arange(relevance.size) if names is None else np.asarray(names)
    if relevance.ndim != 1 or names.shape != relevance.shape:
        raise BadInput(
            f"relevance has shape {relevance.shape} and names {names.shape}; give one of each a column."
        )
    ax = axis(ax)
    best = np.argsort(-relevance, kind="stable")[:most][::-1]
    ax.barh(range(len(best)), relevance[best], color=colour, height=0.7)
    ax.set_yticks(range(len(best)), [str(names[k]) for k in best], parse_math=False)
    ax.set_xlim(0, None)
    ax.set_xlabel("relevance")
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
    """Error of the rows that are kept against the share that is rejected, the least certain first."""
    curve, ax = rejection(P, y, certainty), axis(ax)
    x, error = np.append(curve.rejected, 1.0), np.append(curve.error, curve.error[-1])
    ax.plot(x, error, drawstyle="steps-post", color=colour, ls=style, lw=1.6, label=label or None)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, None)
    ax.set_xlabel("share of rows rejected, least certain first")
    ax.set_ylabel("error of the rest")
    return ax
