"""The plots draw what they say on the axis they are given, and return it."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression

from cavity import BadInput, GPClassifier
from cavity.report.plots import decision_regions, learning_curve, reliability_diagram

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (60, 2))
Y = np.array(["a", "b", "c"])[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0.3)]


@pytest.fixture
def ax():
    return Figure().subplots()


@pytest.fixture(scope="module")
def clf() -> GPClassifier:
    return GPClassifier(n_inducing=5, learn=(), random_state=0).fit(X, Y)


def test_decision_regions_with_inducing_points(ax, clf) -> None:
    assert decision_regions(clf, X, Y, ax, grid=20) is ax
    drawn = [tuple(np.asarray(c.get_offsets()).shape) for c in ax.collections if hasattr(c, "get_offsets")]
    assert drawn.count((60, 2)) == 1
    assert drawn.count((5, 2)) == 6  # a ring and its fill for each class
    assert len(ax.images) == 1


def test_decision_regions_of_any_classifier(ax) -> None:
    assert decision_regions(LogisticRegression().fit(X, Y), X, Y, ax, grid=20) is ax


def test_decision_regions_of_two_classes(ax) -> None:
    two = GPClassifier(n_inducing=5, learn=(), random_state=0).fit(X, Y == "a")
    assert decision_regions(two, X, Y == "a", ax, grid=20) is ax


def test_decision_regions_need_two_columns(ax, clf) -> None:
    with pytest.raises(BadInput, match="two columns"):
        decision_regions(clf, np.zeros((3, 4)), Y[:3], ax)


def test_reliability_diagram(ax, clf) -> None:
    P, y = clf.predict_proba(X), np.searchsorted(clf.classes_, Y)
    assert reliability_diagram(P, y, ax, label="EP") is ax
    reliability_diagram(P, y, ax, label="again")
    assert sum(line.get_gid() == "diagonal" for line in ax.get_lines()) == 1
    assert [text.get_text() for text in ax.legend().get_texts()] == ["EP", "again"]


@pytest.mark.parametrize("against", ["seconds", "epoch"])
def test_learning_curve(ax, clf, against) -> None:
    assert learning_curve(clf.history_, ax, rows=len(X), against=against) is ax
    x, y = ax.get_lines()[0].get_data()
    assert x == pytest.approx([row[against] for row in clf.history_])
    assert y * len(X) == pytest.approx([row["objective"] for row in clf.history_])


def test_learning_curve_says_what_it_needs(ax) -> None:
    with pytest.raises(BadInput, match="history_"):
        learning_curve([], ax)
