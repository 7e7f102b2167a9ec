"""The kernel on normal scores of the columns."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cavity import GPClassifier, export
from cavity.errors import BadOption
from cavity.kernels import RBF, Linear, Ranked, rank_columns
from cavity.options import nest


def make_rows(n=60, seed=0):
    """Rows with a long tail, a coin and a normal column; labels depend on the logarithm of the first."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 3))
    X = np.stack([np.exp(3 * z[:, 0]), (z[:, 1] > 0).astype(float), z[:, 2]], 1)
    y = np.digitize(z[:, 0] + 0.3 * z[:, 2], [-0.5, 0.5])
    return X, y


def make_ranked(X, base=None):
    return Ranked(base or RBF(), *rank_columns(X, np.ones(len(X))))


def test_a_fit_with_scores_is_a_fit_to_the_scores():
    X, y = make_rows()
    kernel = make_ranked(X)
    fixed = {"n_inducing": 20, "learn": (), "random_state": 0, "max_epochs": 60, "tol": 1e-2}
    ranked = GPClassifier("ep", **nest(kernel=kernel, **fixed)).fit(X, y)
    plain = GPClassifier("ep", **nest(kernel=RBF(), **fixed)).fit(kernel.score(X), y)
    new = make_rows(30, seed=1)[0]
    np.testing.assert_allclose(
        ranked.predict_proba(new), plain.predict_proba(kernel.score(new)), rtol=0, atol=1e-10
    )


def test_partial_fit_with_scores_adds_scores():
    X, y = make_rows()
    new, labels = make_rows(30, seed=2)
    kernel = make_ranked(X)
    common = {"effort": "fast", "calibration": None, "n_inducing": 10, "max_epochs": 2, "random_state": 0}
    ranked = GPClassifier(**nest(kernel=kernel, **common)).fit(X, y).partial_fit(new, labels)
    plain = GPClassifier(**nest(kernel=RBF(), **common)).fit(kernel.score(X), y)
    plain.partial_fit(kernel.score(new), labels)
    np.testing.assert_allclose(
        ranked.predict_proba(new), plain.predict_proba(kernel.score(new)), rtol=0, atol=1e-8
    )


def test_training_does_not_depend_on_a_monotone_change_of_units():
    X, y = make_rows()
    changed = np.column_stack([np.log(X[:, 0]), X[:, 1], np.arcsinh(X[:, 2]) * 7])
    found = []
    for rows in (X, changed):
        clf = GPClassifier(
            kernel=make_ranked(rows), ensemble=None, n_inducing=15, max_epochs=5, random_state=0
        )
        found.append(clf.fit(rows, y).predict_proba(rows))
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-8)


def test_scores_are_standardised_and_columns_with_few_values_stay():
    X = make_rows(200)[0]
    where, knots, scores = rank_columns(X, np.ones(len(X)))
    assert where == [0, 2] and knots.shape == scores.shape and len(knots) <= 100
    S = Ranked(RBF(), where, knots, scores).score(X)
    np.testing.assert_array_equal(S[:, 1], X[:, 1])
    np.testing.assert_allclose(S[:, [0, 2]].mean(0), 0, atol=0.02)
    np.testing.assert_allclose(S[:, [0, 2]].std(0), 1, atol=0.02)


def test_a_row_of_weight_two_counts_as_two_rows():
    X = make_rows(40)[0]
    weight = np.random.default_rng(0).integers(1, 4, 40)
    a = rank_columns(X, weight.astype(float))
    b = rank_columns(np.repeat(X, weight, axis=0), np.ones(weight.sum()))
    for left, right in zip(a[1:], b[1:], strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-12)


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=20))
def test_torch_and_numpy_agree_and_every_finite_cell_has_a_finite_score(cells):
    X = make_rows(50)[0]
    kernel = make_ranked(X)
    kernel.bind(1, summarize_units(3))
    rows = np.tile(X[:1], (len(cells), 1))
    rows[:, 0] = cells
    S = kernel.as_points(torch.tensor(rows)).numpy()
    np.testing.assert_allclose(S, kernel.score(rows), rtol=0, atol=1e-9)
    assert np.isfinite(S).all() and np.abs(S[:, 0]).max() < 5


def summarize_units(n):
    from cavity.common.column_statistics import Columns

    return Columns(np.zeros(n), np.ones(n), 1.0)


def test_values_are_the_inverse_of_scores_within_the_knots():
    X = make_rows(150)[0]
    kernel = make_ranked(X)
    inside = X[(X[:, 0] > X[:, 0].min()) & (X[:, 0] < X[:, 0].max())]
    np.testing.assert_allclose(kernel.value(kernel.score(inside)), inside, rtol=1e-9)


def test_inducing_points_and_missing_cells_are_in_the_units_of_the_data():
    pd = pytest.importorskip("pandas")
    X, y = make_rows()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    clf = GPClassifier(kernel=make_ranked(X), effort="fast", n_inducing=10, max_epochs=3, random_state=0).fit(
        frame, y
    )
    points = clf.inducing_points_[..., 0]
    assert points.min() >= X[:, 0].min() and points.max() <= X[:, 0].max()
    row = frame.iloc[:1].copy()
    row.loc[0, "a"] = np.nan
    with pytest.warns(UserWarning, match="missing"):
        found = clf.predict_proba(row)
    row.loc[0, "a"] = clf.kernel_.value(clf._fitted.prior.center.numpy()[None])[0, 0]
    np.testing.assert_allclose(found, clf.predict_proba(row), atol=1e-12)


def test_onnx_agrees(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    X, y = make_rows()
    clf = GPClassifier(
        kernel=make_ranked(X, RBF() + Linear()), effort="fast", n_inducing=10, max_epochs=3, random_state=0
    )
    export.onnx(clf.fit(X, y), tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    new = np.concatenate([make_rows(30, seed=1)[0], [[1e12, 0.0, -1e12]]])
    name = session.get_inputs()[0].name
    found = next(o for o in session.run(None, {name: new}) if np.ndim(o) == 2)
    np.testing.assert_allclose(found, clf.predict_proba(new), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "columns, knots, scores",
    [
        ([0], [[1.0], [0.0]], [[0.0], [1.0]]),
        ([0, 0], [[0.0, 0.0], [1.0, 1.0]], [[0.0, 0.0], [1.0, 1.0]]),
        ([7], [[0.0], [1.0]], [[0.0], [1.0]]),
        ([0], [[0.0]], [[0.0]]),
        ([0], [[0.0], [np.inf]], [[0.0], [1.0]]),
    ],
)
def test_bad_knots_are_refused(columns, knots, scores):
    with pytest.raises(BadOption, match="Ranked needs knots"):
        Ranked(RBF(), columns, np.array(knots), np.array(scores)).bind(1, summarize_units(3))
