"""Results become frames of pandas or polars, and tables in a notebook."""

import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.feature_selection import SelectFromModel

from cavity import GPClassifier, GPRegressor
from cavity.errors import MissingExtra

N = 60
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "size": RNG.normal(size=N),
        "<b>": RNG.normal(size=N),
        "town": RNG.choice(["x", "y"], N),
    }
)
LABELS = np.array(["a", "b", "c"])[
    (TABLE["size"] > 0).astype(int) + (TABLE["<b>"] > 0.5)
]


@pytest.fixture(scope="module")
def clf() -> GPClassifier:
    return GPClassifier(effort="fast", n_inducing=8, max_epochs=3, random_state=0).fit(
        TABLE, LABELS
    )


@pytest.fixture(scope="module")
def gp() -> GPRegressor:
    return GPRegressor(max_epochs=3, random_state=0).fit(
        TABLE[["size", "<b>"]], TABLE["size"] ** 2
    )


def results(clf, gp) -> dict:
    """Each result, with the shape of its frame."""
    two = TABLE[["size", "<b>"]]
    return {
        "explain": (clf.explain(TABLE, LABELS, n_repeats=1), (3, 3)),
        "explain_rows": (
            clf.explain_rows(TABLE[:7], TABLE, n_background=3),
            (7 * 3 * 3, 5),
        ),
        "explain_rows of numbers": (
            gp.explain_rows(two[:7], two, n_background=3),
            (7 * 2, 4),
        ),
        "partial_dependence": (
            clf.partial_dependence(TABLE, "town", n_rows=5),
            (2 * 3, 5),
        ),
        "partial_dependence of numbers": (
            gp.partial_dependence(two, "size", n_values=4, n_rows=5),
            (4, 4),
        ),
        "predict_uncertainty": (clf.predict_uncertainty(TABLE), (N, 4)),
        "suspect_labels": (clf.suspect_labels(5), (5, 4)),
        "held_out_": (clf.held_out_, (N, 5 + 3 * (1 + len(clf.members_.names)))),
        "members_": (clf.members_, (len(clf.members_.names), 5)),
        "rank_for_labeling": (clf.rank_for_labeling(TABLE), (N, 2)),
        "estimate_": (clf.estimate_, (2, 4)),
        "estimate_ of numbers": (gp.estimate_, (5, 4)),
        "plan_": (clf.plan_, (len(clf.plan_.choices), 3)),
    }


def test_every_result_is_a_frame_and_a_table_of_html(clf, gp) -> None:
    for name, (result, shape) in results(clf, gp).items():
        assert (
            isinstance(result.to_frame(), pd.DataFrame)
            and result.to_frame().shape == shape
        ), name
        shown = result._repr_html_()
        assert shown.count("<tr>") > 1 and "<b>" not in shown, name


def test_without_pandas_frames_are_those_of_polars_and_without_both_a_message_says_so(
    clf, gp, monkeypatch
) -> None:
    found = results(clf, gp)
    monkeypatch.setitem(sys.modules, "pandas", None)
    for name, (result, shape) in found.items():
        assert (
            isinstance(result.to_frame(), pl.DataFrame)
            and result.to_frame().shape == shape
        ), name
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingExtra, match="polars"):
        clf.plan_.to_frame()


def test_frames_hold_the_numbers_of_the_results(clf) -> None:
    moved = clf.explain_rows(TABLE[:4], TABLE, n_background=3)
    frame = moved.to_frame().set_index(["row", "column", "class"])["contribution"]
    for i, name in enumerate(moved.names):
        for c, label in enumerate(clf.classes_):
            np.testing.assert_array_equal(
                frame[:, name, label], moved.contributions[:, i, c]
            )
    curve = clf.partial_dependence(TABLE, "size", n_values=3, n_rows=5)
    np.testing.assert_array_equal(
        curve.to_frame().pivot(index="size", columns="class", values="mean"), curve.mean
    )


def test_suspect_labels_have_scores_and_are_an_index(clf) -> None:
    found = clf.suspect_labels(5)
    held = clf.held_out_
    place = np.argsort(held.rows)[found.rows]  # folds judge every row
    label = np.searchsorted(clf.classes_, LABELS[found])
    np.testing.assert_allclose(found.scores, np.exp(held.log_proba[place, label]))
    assert found.labels.tolist() == LABELS[found].tolist()
    likely = clf.classes_[held.log_proba[place].argmax(1)]
    assert found.suggested.tolist() == likely.tolist()
    assert (
        TABLE.iloc[list(found)].index.tolist() == found.rows.tolist() == list(found)
        and len(found) == 5
    )


def test_feature_importances_are_those_that_scikit_learn_selects_by(clf) -> None:
    np.testing.assert_array_equal(clf.feature_importances_, clf.feature_importance_)
    chosen = SelectFromModel(
        clf, prefit=True, max_features=1, threshold=-np.inf
    ).get_support()
    assert (
        chosen.tolist()
        == (clf.feature_importance_ == clf.feature_importance_.max()).tolist()
    )
    with pytest.raises(AttributeError, match="after fit"):
        GPClassifier().feature_importances_


def test_a_notebook_shows_plan_estimate_and_columns_of_a_fitted_estimator(
    clf, gp
) -> None:
    for shown in (clf._repr_html_(), clf._repr_mimebundle_()["text/html"]):
        for head in ("Plan", "Estimate", "Columns"):
            assert f"<summary>{head}</summary>" in shown
        assert (
            f"{clf.estimate_.log_loss:.4g}" in shown
            and "town" in shown
            and "&lt;b&gt;" in shown
        )
    assert (
        "<summary>Estimate</summary>" in gp._repr_html_()
        and "<summary>Columns" not in GPClassifier()._repr_html_()
    )
    assert "<summary>" not in clf._repr_mimebundle_()["text/plain"]
