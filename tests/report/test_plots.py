"""The plots draw what they say on the axis they are given, and return it."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression

from cavity import BadInput, GPClassifier, Training, plots, report

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (60, 2))
Y = np.array(["a", "b", "c"])[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0.3)]


@pytest.fixture
def ax():
    return Figure().subplots()


@pytest.fixture(scope="module")
def clf() -> GPClassifier:
    return GPClassifier(n_inducing=5, training=Training(learn=()), random_state=0).fit(X, Y)


def offsets(ax) -> list[np.ndarray]:
    return [
        np.asarray(drawn.get_offsets())
        for drawn in ax.collections
        if type(drawn).__name__ == "PathCollection"
    ]


def test_decision_regions_show_the_rows_on_top_with_a_legend(ax, clf) -> None:
    assert plots.decision_regions(clf, X, Y, ax, grid=20) is ax
    np.testing.assert_allclose(np.concatenate(offsets(ax)), np.concatenate([X[Y == c] for c in "abc"]))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b", "c"]
    rows = [drawn.get_zorder() for drawn in ax.collections if type(drawn).__name__ == "PathCollection"]
    assert min(rows) > max(d.get_zorder() for d in ax.collections if type(d).__name__ != "PathCollection")


def test_decision_regions_show_inducing_points_on_request(ax, clf) -> None:
    plots.decision_regions(clf, X, Y, ax, grid=20, show_inducing=True, legend=False)
    assert [len(points) for points in offsets(ax)] == [15, *(np.sum(Y == c) for c in "abc")]
    assert ax.get_legend() is None


def test_many_classes_with_long_names_are_named_beside_the_plot(ax) -> None:
    names = np.array([f"{k} is a class with a long name" for k in range(5)])[np.arange(60) % 5]
    plots.decision_regions(LogisticRegression().fit(X, names), X, names, ax, grid=20)
    assert all(len(text.get_text()) <= 16 for text in ax.get_legend().get_texts())
    assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1
    plots.confusion_matrix(names, names, ax)
    assert {len(text.get_text()) for text in ax.get_xticklabels()} == {16}


def test_decision_regions_are_white_where_nothing_was_seen(ax) -> None:
    clf = GPClassifier("ep", n_inducing=20, max_epochs=20, random_state=0).fit(X, Y)
    far = np.vstack([X, [[-9, -9], [9, 9]]])
    plots.decision_regions(clf, far, np.append(Y, ["a", "b"]), ax, grid=21)
    shades = ax.images[0].get_array()
    assert shades[0, -1].min() > 0.99 > 0.9 > shades[10, 10].min()
    lines = [drawn for drawn in ax.collections if type(drawn).__name__ != "PathCollection"]
    assert max(np.abs(path.vertices).max() for drawn in lines for path in drawn.get_paths()) < 6


def test_decision_regions_of_any_classifier_and_of_two_classes(ax) -> None:
    assert plots.decision_regions(LogisticRegression().fit(X, Y), X, Y, ax, grid=20) is ax
    two = GPClassifier(n_inducing=5, training=Training(learn=()), random_state=0).fit(X, Y == "a")
    assert plots.decision_regions(two, X, Y == "a", ax, grid=20) is ax


def test_figures_say_what_they_need(ax, clf) -> None:
    with pytest.raises(BadInput, match="two columns"):
        plots.decision_regions(clf, np.zeros((3, 4)), Y[:3], ax)
    with pytest.raises(BadInput, match="history_"):
        plots.learning_curve([], ax)
    with pytest.raises(BadInput, match="no relevance"):
        plots.relevance_bars(None, ax)
    with pytest.raises(BadInput, match="one of each"):
        plots.relevance_bars([0.5, 0.5], ax, names=["x"])


def test_reliability_diagram(ax, clf) -> None:
    P, y = clf.predict_proba(X), np.searchsorted(clf.classes_, Y)
    assert plots.reliability_diagram(P, y, ax, label="EP") is ax
    plots.reliability_diagram(P, y, ax, label="again")
    assert sum(line.get_gid() == "diagonal" for line in ax.get_lines()) == 1
    assert [text.get_text() for text in ax.legend().get_texts()] == ["EP", "again"]


@pytest.mark.parametrize("against", ["seconds", "epoch"])
def test_learning_curve(ax, clf, against) -> None:
    assert plots.learning_curve(clf.history_, ax, rows=len(X), against=against) is ax
    x, y = ax.get_lines()[0].get_data()
    assert x == pytest.approx([row[against] for row in clf.history_])
    assert y * len(X) == pytest.approx([row["objective"] for row in clf.history_])


def test_confusion_matrix_counts_pairs_of_classes(ax) -> None:
    assert plots.confusion_matrix(["a", "a", "b", "c"], ["a", "b", "b", "b"], ax) is ax
    shown = {(int(t.get_position()[1]), int(t.get_position()[0])): t.get_text() for t in ax.texts}
    assert shown == {(0, 0): "1", (0, 1): "1", (1, 1): "1", (2, 1): "1"}
    np.testing.assert_allclose(ax.images[0].get_array(), [[0.5, 0.5, 0], [0, 1, 0], [0, 1, 0]])
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b", "c"]
    ax = plots.confusion_matrix([1, 2], [2, 2], Figure().subplots(), labels=[3, 2, 1])
    np.testing.assert_allclose(ax.images[0].get_array(), [[0, 0, 0], [0, 1, 0], [0, 1, 0]])
    with pytest.raises(BadInput, match="'1' is not in labels"):
        plots.confusion_matrix([1, 2], [2, 2], ax, labels=[2, 3])


def test_labels_with_dollar_signs_are_text_not_mathematics(ax) -> None:
    plots.confusion_matrix(["$x$", "$\\frac$"], ["$x$", "$x$"], ax)
    plots.relevance_bars([1.0], Figure().subplots(), names=["$\\nothing{$"])
    ax.figure.canvas.draw()  # a formula that cannot be set would raise here
    assert [t.get_text().replace("\\", "") for t in ax.get_xticklabels()] == ["$frac$", "$x$"]


def test_relevance_bars_are_sorted_and_named(ax) -> None:
    assert plots.relevance_bars([0.2, 0.5, 0.3], ax, names=["x", "y", "z"], most=2) is ax
    assert [bar.get_width() for bar in ax.patches] == [0.3, 0.5]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["z", "y"]


def test_rejection_curve_draws_the_rejection(ax, clf) -> None:
    P, y = clf.predict_proba(X), np.searchsorted(clf.classes_, Y)
    assert plots.rejection_curve(P, y, ax) is ax
    x, drawn = ax.get_lines()[0].get_data()
    curve = report.rejection(P, y)
    np.testing.assert_allclose(x[:-1], curve.rejected)
    np.testing.assert_allclose(drawn[:-1], curve.error)


def test_without_an_axis_the_current_one_is_drawn_on() -> None:
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    _, own = pyplot.subplots()
    assert plots.relevance_bars([0.4, 0.6]) is own
    pyplot.close()
