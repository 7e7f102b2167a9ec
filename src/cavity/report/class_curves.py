"""Curves of single classes: reliability, gain, precision and recall."""

from __future__ import annotations

import numpy as np

from cavity.common.scoring import bin_events
from cavity.common.types import Floats, Ints
from cavity.report.charts import MAX_SERIES, Figure
from cavity.report.colours import name_series
from cavity.report.detection import Detection
from cavity.report.svg import UNIT, Plot

POINTS = 200  # of a curve
DOTS = 10  # of a curve that show their numbers
FIFTH = 0.2  # share of rows that the text names


def draw_reliability(
    P: Floats, y: Ints, classes: list[str], positive: int | None
) -> Figure:
    """Draw how often rows are of a class, against its probability, from 0 to 1.

    With two classes, only the positive one: the other is its mirror image.
    """
    counts = np.bincount(y, minlength=len(classes))
    if positive is not None:
        counts[positive] = len(y) + 1  # it comes first
    most = 1 if len(classes) == 2 else MAX_SERIES
    shown = sorted(np.argsort(-counts, kind="stable")[:most].tolist())
    alone = len(shown) == 1
    name = classes[shown[0]] if alone else "a class"
    labels = (f"probability of {name}", f"share of rows of {name}")
    plot = Plot(UNIT, UNIT, labels=labels)
    plot.diagonal()
    off = []
    sparse = False
    for c in shown:
        table = bin_events(P[:, c], y == c)
        drawn = table.rows > 0
        if not alone and table.many.any():  # whiskers of few rows hide the others
            sparse |= bool((drawn & ~table.many).any())
            drawn = table.many
        plot.bins(table, drawn, name_series(c), (classes[c], "true"))
        off.append(f"{classes[c]} {table.error:.3f}")

    alt = f"Reliability of each class, off on average by {', '.join(off)}."
    caption = (
        "On the diagonal, a class is as frequent as its probability says. Larger dots "
        "have more rows; whiskers are one standard error."
    )
    if sparse:
        caption += " Bins with few rows are not drawn."
    if len(shown) < len(classes) and len(classes) > 2:
        caption += f" Only {len(shown)} of {len(classes)} classes, the most frequent."
    legend = {} if alone else {c: classes[c] for c in shown}
    head = "Are the probabilities of each class right?"
    return Figure("reliability", plot.render(alt), caption, head, legend)


def draw_gain(found: Detection, name: str) -> Figure:
    """Draw the share of a class that is found among the rows with the largest p."""
    keep = _thin(len(found.selected))
    selected = found.selected[keep]
    recall = found.recall[keep]
    labels = ("share of rows looked at", f"share of {name} found")
    plot = Plot(UNIT, UNIT, labels=labels)
    plot.diagonal()
    plot.line([0, *selected], [0, *recall], "c0")
    every = max(1, len(keep) // DOTS)
    plot.dots(
        selected[::every],
        recall[::every],
        "c0",
        lambda x, y: f"{x:.0%} of the rows hold {y:.0%} of {name}",
    )

    fifth = float(np.interp(FIFTH, [0, *found.selected], [0, *found.recall]))
    alt = f"A fifth of the rows holds {fifth:.2f} of the rows of {name}."
    caption = (
        f"Rows are looked at in the order of their probability of {name}. The first "
        f"fifth holds {fifth:.0%} of them. The grey line is a random order."
    )
    return Figure("gain", plot.render(alt), caption, "How many are found?")


def draw_precision_recall(found: Detection, name: str) -> Figure:
    """Draw the precision of a class against its recall, over all thresholds."""
    keep = _thin(len(found.recall))
    recall = found.recall[keep]
    precision = found.precision[keep]
    labels = (f"recall: share of {name} found", "precision: share that is right")
    plot = Plot(UNIT, UNIT, labels=labels)
    plot.line([0, 1], [found.share, found.share], "reference")
    plot.line(recall, precision, "c0")
    for k in range(0, len(keep), max(1, len(keep) // DOTS)):
        tip = (
            f"probability of {name} from {found.threshold[keep[k]]:.3f}: "
            f"{recall[k]:.0%} found, {precision[k]:.0%} of the alarms right"
        )
        plot.dot(recall[k], precision[k], "c0", tip, radius=3)

    area = found.average_precision
    alt = f"Precision and recall of {name}; average precision {area:.3f}."
    caption = (
        f"Each point is a threshold. Average precision {area:.2f}; a random order has "
        f"{found.share:.2f}, the grey line."
    )
    return Figure("precision", plot.render(alt), caption, "How many alarms are false?")


def _thin(n: int) -> Ints:
    """Choose points of a curve of n points, both ends included."""
    return np.unique(np.linspace(0, n - 1, min(n, POINTS)).round().astype(np.int64))
