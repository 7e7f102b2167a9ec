"""A model does not depend on the order and signs of columns, on constant columns, nor
on the names of levels and classes.
"""

import numpy as np
import pandas as pd
import pytest

from cavity import GPClassifier
from cavity.common.column_statistics import distinct_rows, order_columns
from support import ALONE, slow

NAMES = dict(zip("abcd", "zyxw", strict=True))
SHORT = {"max_epochs": 3, "random_state": 0}
pytestmark = pytest.mark.usefixtures("few_trees")


def make_frame(N, seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(N, 4)), columns=list("pqrs")).assign(
        k=rng.choice(list("abcd"), N)
    )
    f = frame.p + frame.q**2 - frame.r + 1.5 * (frame.k == "a")
    return frame, np.digitize(f, [0.0, 1.5])


CHANGES = {
    "columns": lambda frame: frame[["k", "s", "r", "q", "p"]],
    "constant": lambda frame: frame.assign(z=7.0),
    "levels": lambda frame: frame.assign(k=[NAMES[level] for level in frame.k]),
    "columns of an array": lambda frame: frame[["r", "p", "s", "q"]].to_numpy(),
    "constant in an array": lambda frame: (
        frame[["p", "q", "r", "s"]].assign(z=7.0)[["p", "z", "q", "r", "s"]].to_numpy()
    ),
}


@pytest.mark.parametrize("N", [60, slow(400)])
@pytest.mark.parametrize("effort", ["fast", slow("balanced")])
def test_probabilities_stay_the_same(effort, N):
    frame, y = make_frame(N, 1)
    new, _ = make_frame(100, 2)

    def predict(change):
        model = GPClassifier(effort=effort, n_inducing=10, **SHORT)
        return model.fit(change(frame), y).predict_proba(change(new))

    known = {
        False: predict(lambda f: f),
        True: predict(lambda f: f[list("pqrs")].to_numpy()),
    }
    for name, change in CHANGES.items():
        np.testing.assert_allclose(
            predict(change), known["array" in name], atol=1e-6, err_msg=name
        )


@pytest.mark.parametrize("effort", ["fast", slow("balanced")])
def test_signs_of_columns_and_names_of_classes_decide_nothing(effort):
    """Another order of names, and mirrored columns, drew other folds, inducing points
    and networks.
    """
    frame, y = make_frame(60, 1)
    new, _ = make_frame(100, 2)
    X, X_new = (rows[list("pqrs")].to_numpy() for rows in (frame, new))
    rename = np.array([1, 2, 0])
    signs = np.array([-1.0, 1.0, -1.0, -1.0])

    def predict(X, y, X_new):
        return GPClassifier(effort=effort, **SHORT).fit(X, y).predict_proba(X_new)

    known = predict(X, y, X_new)
    np.testing.assert_allclose(predict(X * signs, y, X_new * signs), known, atol=1e-6)
    np.testing.assert_allclose(
        predict(X, rename[y], X_new)[:, rename], known, atol=1e-6
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_trees_split_mirrored_columns_where_they_are(weighted):
    """Labels that only trees learn; boosting and extra trees drew other thresholds for
    −X.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    weight = rng.uniform(0.5, 2.0, 300) if weighted else None
    y = ((X[:, 0] > 0) ^ (X[:, 1] > 0.3) ^ (rng.random(300) < 0.1)).astype(int)
    p, q = (
        GPClassifier(**SHORT).fit(s * X, y, weight).predict_proba(s * X)
        for s in (1.0, -1.0)
    )
    np.testing.assert_allclose(p, q, atol=1e-6)


def test_a_constant_column_has_no_relevance_and_the_others_keep_theirs():
    frame, y = make_frame(60, 1)
    X = frame[list("pqrs")].to_numpy()
    with_constant = np.column_stack([X[:, :2], np.ones(60), X[:, 2:]])
    found, expected = (
        GPClassifier(**SHORT, **ALONE).fit(rows, y).feature_relevance_
        for rows in (with_constant, X)
    )
    assert (found[..., 2] == 0).all()
    np.testing.assert_allclose(np.delete(found, 2, axis=-1), expected, rtol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_distinct_rows_have_an_order_of_their_own(seed):
    rng = np.random.default_rng(seed)
    X = np.column_stack(
        [rng.normal(size=(50, 3)), np.eye(4)[rng.integers(4, size=50)], np.zeros(50)]
    )[rng.integers(50, size=80)]
    columns = rng.permutation(8)
    rows = rng.permutation(80)
    distinct, place = distinct_rows(X)
    np.testing.assert_array_equal(distinct[place], X)
    np.testing.assert_array_equal(
        distinct_rows(X[rows][:, columns])[0], distinct[:, columns]
    )
    np.testing.assert_array_equal(
        columns[order_columns(X[:, columns])], order_columns(X)
    )
