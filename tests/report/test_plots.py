"""The plots draw what they say on the axis they are given, and return it."""

from itertools import chain

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression

from cavity import BadInput, GPClassifier, Training, plots
from support import ALONE

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (60, 2))
Y = np.array(["a", "b", "c"])[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0.3)]


@pytest.fixture
def ax():
    return Figure().subplots()


def make() -> GPClassifier:
    fixed = Training(learn=())
    return GPClassifier(n_inducing=5, training=fixed, random_state=0, **ALONE)


@pytest.fixture(scope="module")
def clf() -> GPClassifier:
    return make().fit(X, Y)


def offsets(ax) -> list[np.ndarray]:
    return [
        np.asarray(drawn.get_offsets())
        for drawn in ax.collections
        if type(drawn).__name__ == "PathCollection"
    ]


def test_decision_regions_show_the_rows_on_top_with_a_legend(ax, clf) -> None:
    assert plots.decision_regions(clf, X, Y, ax, grid=20) is ax
    np.testing.assert_allclose(
        np.concatenate(offsets(ax)), np.concatenate([X[Y == c] for c in "abc"])
    )
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b", "c"]
    rows = [
        drawn.get_zorder()
        for drawn in ax.collections
        if type(drawn).__name__ == "PathCollection"
    ]
    assert min(rows) > max(
        d.get_zorder() for d in ax.collections if type(d).__name__ != "PathCollection"
    )


def test_decision_regions_show_inducing_points_on_request(ax, clf) -> None:
    plots.decision_regions(clf, X, Y, ax, grid=20, show_inducing=True)
    assert [len(points) for points in offsets(ax)] == [
        15,
        *(np.sum(Y == c) for c in "abc"),
    ]


def test_many_classes_with_long_names_are_named_beside_the_plot(ax) -> None:
    names = np.array([f"{k} is a class with a long name" for k in range(5)])[
        np.arange(60) % 5
    ]
    plots.decision_regions(LogisticRegression().fit(X, names), X, names, ax, grid=20)
    assert all(len(text.get_text()) <= 16 for text in ax.get_legend().get_texts())
    assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1


def test_decision_regions_are_white_where_nothing_was_seen(ax) -> None:
    clf = GPClassifier("ep", n_inducing=20, max_epochs=20, random_state=0).fit(X, Y)
    far = np.vstack([X, [[-9, -9], [9, 9]]])
    plots.decision_regions(clf, far, np.append(Y, ["a", "b"]), ax, grid=21)
    shades = ax.images[0].get_array()
    assert shades[0, -1].min() > 0.99 > 0.9 > shades[10, 10].min()
    lines = [
        drawn for drawn in ax.collections if type(drawn).__name__ != "PathCollection"
    ]
    paths = chain.from_iterable(drawn.get_paths() for drawn in lines)
    assert max(np.abs(path.vertices).max() for path in paths) < 6


def test_decision_regions_of_any_classifier_and_of_two_classes(ax) -> None:
    assert (
        plots.decision_regions(LogisticRegression().fit(X, Y), X, Y, ax, grid=20) is ax
    )
    two = make().fit(X, Y == "a")
    assert plots.decision_regions(two, X, Y == "a", ax, grid=20) is ax


def test_regions_need_two_columns(ax, clf) -> None:
    with pytest.raises(BadInput, match="two columns"):
        plots.decision_regions(clf, np.zeros((3, 4)), Y[:3], ax)


def test_reliability_diagram(ax, clf) -> None:
    P = clf.predict_proba(X)
    y = np.searchsorted(clf.classes_, Y)
    assert plots.reliability_diagram(P, y, ax, label="EP") is ax
    plots.reliability_diagram(P, y, ax, label="again")
    assert sum(line.get_gid() == "diagonal" for line in ax.get_lines()) == 1
    assert [text.get_text() for text in ax.legend().get_texts()] == ["EP", "again"]


def test_without_an_axis_the_current_one_is_drawn_on() -> None:
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    _, own = pyplot.subplots()
    assert plots.reliability_diagram([[0.4, 0.6]], [1]) is own
    pyplot.close()
