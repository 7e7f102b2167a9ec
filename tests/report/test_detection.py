"""Precision, recall and gain of one class, and the curves of single classes."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.metrics import average_precision_score, precision_recall_curve

from cavity import BadInput, BadOption, plots
from cavity.report import detection, reliability
from cavity.report.class_curves import (
    draw_gain,
    draw_precision_recall,
    draw_reliability,
)

RNG = np.random.default_rng(0)
CLASSES = np.array(["bad", "fair", "good"])
P = RNG.dirichlet([0.3, 1.0, 2.0], 400).round(2)  # with ties
P /= P.sum(1, keepdims=True)
CODES = np.array([RNG.choice(3, p=p) for p in P])
Y = CLASSES[CODES]


@pytest.mark.parametrize("c", range(3))
def test_precision_and_recall_are_scikit_learns(c) -> None:
    found = detection(P, Y, CLASSES[c], labels=CLASSES)
    precision, recall, threshold = precision_recall_curve(CODES == c, P[:, c])
    np.testing.assert_allclose(found.precision[::-1], precision[:-1])
    np.testing.assert_allclose(found.recall[::-1], recall[:-1])
    np.testing.assert_allclose(found.threshold[::-1], threshold)
    expected = average_precision_score(CODES == c, P[:, c])
    assert found.average_precision == pytest.approx(expected)
    assert found.share == np.mean(CODES == c)


def test_gain_counts_the_rows_of_the_class_among_the_selected() -> None:
    found = detection(P, CODES, 0)
    assert (np.diff(found.selected) > 0).all() and found.selected[-1] == 1
    for k in (0, 7, -1):
        chosen = P[:, 0] >= found.threshold[k]
        assert found.selected[k] == chosen.mean()
        assert found.recall[k] == pytest.approx(
            (CODES[chosen] == 0).sum() / (CODES == 0).sum()
        )


def test_reliability_of_a_class_spans_zero_to_one() -> None:
    found = reliability(P, Y, 4, CLASSES, positive="bad")
    for k in range(4):
        p = P[:, 0]
        inside = (found.edges[k] < p) & (p <= found.edges[k + 1])
        if k == 0:
            inside |= p == 0
        assert found.rows[k] == inside.sum()
        np.testing.assert_allclose(found.accuracy[k], np.mean(CODES[inside] == 0))
        np.testing.assert_allclose(found.confidence[k], p[inside].mean())


def test_a_class_without_rows_or_name_is_refused() -> None:
    with pytest.raises(BadOption, match="'ugly'"):
        detection(P, Y, "ugly", labels=CLASSES)
    with pytest.raises(BadOption, match="'ugly'"):
        reliability(P, Y, labels=CLASSES, positive="ugly")
    with pytest.raises(BadInput, match="'bad'"):
        detection(P[CODES > 0], Y[CODES > 0], "bad", labels=CLASSES)


def test_figures_draw_what_they_say() -> None:
    names = CLASSES.tolist()
    drawn = draw_reliability(P, CODES, names, None)
    assert list(drawn.legend.values()) == names
    error = reliability(P, CODES, positive=0).error
    assert f"bad {error:.3f}" in drawn.plot
    alone = draw_reliability(P[:, :2], np.minimum(CODES, 1), names[:2], 0)
    assert not alone.legend and "probability of bad" in alone.plot

    found = detection(P, CODES, 0)
    fifth = np.interp(0.2, [0, *found.selected], [0, *found.recall])
    assert f"holds {fifth:.0%}" in draw_gain(found, "bad").caption
    said = draw_precision_recall(found, "bad").caption
    assert f"{found.average_precision:.2f}" in said and f"{found.share:.2f}" in said


def test_plots_draw_the_same_curves() -> None:
    found = detection(P, CODES, 0)
    ax = plots.precision_recall(P, CODES, 0, Figure().subplots())
    np.testing.assert_allclose(ax.get_lines()[1].get_xdata(), found.recall)
    np.testing.assert_allclose(ax.get_lines()[1].get_ydata(), found.precision)
    ax = plots.gain(P, CODES, 0, Figure().subplots())
    np.testing.assert_allclose(ax.get_lines()[1].get_ydata()[1:], found.recall)
    ax = plots.reliability_diagram(P, CODES, Figure().subplots(), positive=0)
    table = reliability(P, CODES, positive=0)
    np.testing.assert_allclose(
        ax.get_lines()[1].get_ydata(), table.accuracy[table.many]
    )
