"""Scores of class probabilities against values worked out by hand."""

import numpy as np
import pandas as pd
import pytest

from cavity import BadInput, BadOption
from cavity.report import conformal, rejection, reliability

P = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.5, 0.25, 0.25], [0.15, 0.1, 0.75]])
Y = np.array([0, 1, 2, 0])  # right, right, wrong, wrong


def test_scores_by_hand() -> None:
    assert reliability(P, Y, bins=5).error == pytest.approx(
        (0.5 + 3 * (0.75 - 2 / 3)) / 4
    )
    assert reliability(P, Y, bins=1).error == pytest.approx(abs(P.max(1).mean() - 0.5))
    certain = np.eye(3)[Y]
    assert reliability(certain, Y).error == 0


def test_reliability_by_hand() -> None:
    table = reliability(P, Y, bins=5)  # (0.4, 0.6]: 0.5;  (0.6, 0.8]: 0.7, 0.8, 0.75
    assert table.edges == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert table.rows.tolist() == [0, 0, 1, 3, 0]
    assert table.confidence[2:4] == pytest.approx([0.5, 0.75])
    assert table.accuracy[2:4] == pytest.approx([0, 2 / 3])
    assert (
        np.isnan(table.confidence[[0, 1, 4]]).all()
        and np.isnan(table.accuracy[[0, 1, 4]]).all()
    )


def test_rows_of_a_group_count_once_in_the_intervals() -> None:
    once = reliability(P, Y, bins=2)
    often = reliability(
        P.repeat(4, 0), Y.repeat(4), bins=2, groups=np.arange(4).repeat(4)
    )
    assert often.rows.tolist() == (4 * once.rows).tolist()
    np.testing.assert_allclose(often.low, once.low)
    np.testing.assert_allclose(often.high, once.high)
    with pytest.raises(BadInput, match=r"\(3,\)"):
        reliability(P, Y, groups=[0, 1, 2])


def test_every_row_is_in_one_bin() -> None:
    rng = np.random.default_rng(0)
    many = rng.dirichlet([0.3, 0.3, 0.3], 500)
    table = reliability(many, rng.integers(0, 3, 500))
    assert table.rows.sum() == 500
    held = table.rows > 0
    assert (table.confidence[held] > table.edges[:-1][held]).all()
    assert (table.confidence[held] <= table.edges[1:][held]).all()


@pytest.mark.parametrize(
    "bad_p, bad_y",
    [
        (P[0], Y),
        (P, Y[:2]),
        (P, Y + 1),
        (P, Y.astype(float)),
        (P[:0], Y[:0]),
        (P, ["a"] * 4),
    ],
)
def test_labels_and_shapes_that_do_not_fit_are_refused(
    bad_p: object, bad_y: object
) -> None:
    with pytest.raises(BadInput):
        reliability(bad_p, bad_y)


@pytest.mark.parametrize("row", [[np.nan, np.nan], [3.0, -2.0]])
def test_what_is_no_probability_is_refused(row):
    """A NaN would else be a mistake that no bin counts."""
    P = [[0.95, 0.05], row]
    with pytest.raises(BadInput, match="row 1"):
        reliability(P, [1, 0]).error


def test_labels_may_be_names_of_columns() -> None:
    """Only column numbers were accepted."""
    names = np.array(["cat", "dog", "ant"])
    frame = pd.DataFrame(P, columns=names)
    score = lambda *given, **more: reliability(*given, **more).error
    assert (
        score(P, names[Y], labels=names)
        == score(frame, names[Y])
        == score(frame, Y)
        == score(P, Y)
    )
    np.testing.assert_array_equal(
        conformal(frame, names[Y]).least, conformal(P, Y).least
    )
    np.testing.assert_array_equal(
        rejection(P, names[Y], labels=names).error, rejection(P, Y).error
    )
    other = pd.DataFrame(P, columns=[3, 1, 2]), np.array([3, 1, 2])[Y]
    assert reliability(*other).error == reliability(P, Y).error
    with pytest.raises(BadInput, match="'cow'"):
        reliability(P, ["cow"] * 4, labels=names)
    with pytest.raises(BadInput, match=r"2 .*3"):
        reliability(P, names[Y], labels=names[:2])


def test_bins_that_are_no_number_of_bins_are_an_error() -> None:
    for bins in (0, -1, 2.5, "many"):
        with pytest.raises(BadOption, match="integer"):
            reliability([[0.9, 0.1]], [0], bins=bins)
