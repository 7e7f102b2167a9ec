"""Missing cells: an indicator beside the mean, learnt, predicts better than a model of
the complete rows alone.
"""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from cavity import Costs, GPClassifier, GPRegressor, load
from support import without_warnings


def nll(X, y, new, labels):
    with without_warnings():
        model = GPClassifier(effort="fast", random_state=0, device="cpu").fit(X, y)
        P = model.predict_proba(new)
    assert len(model.classes_) == len(set(labels))
    return -np.log(P[np.arange(len(labels)), labels]).mean()


@pytest.mark.usefixtures("few_trees")
def test_a_gap_that_says_something_is_learnt():
    """The label is whether a cell is missing: the mean alone could not tell."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    table = pd.DataFrame(
        {"a": np.where(y == 1, np.nan, rng.normal(size=120)), "b": rng.normal(size=120)}
    )
    fitted = GPClassifier(
        effort="fast", n_inducing=10, random_state=0, device="cpu"
    ).fit(table[:80], y[:80])
    assert fitted.score(table[80:], y[80:]) == 1.0
    assert nll(table[:80], y[:80], table[80:], y[80:]) < 0.1


def gaps(seed=0, n=120):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    return np.where(rng.random(X.shape) < 0.15, np.nan, X), y


FAST = {"calibration": None, "n_inducing": 10, "max_epochs": 3, "random_state": 0}


@pytest.mark.filterwarnings("error", "ignore::sklearn.exceptions.ConvergenceWarning")
def test_nan_in_an_array_is_a_missing_cell_as_in_a_frame(tmp_path):
    X, y = gaps()
    named = pd.DataFrame(X, columns=["x0", "x1", "x2"])
    P = GPClassifier(**FAST).fit(named, y).predict_proba(named)
    for rows in (X, X.tolist(), torch.tensor(X)):
        clf = GPClassifier(**FAST).fit(rows, y)
        assert clf.n_features_in_ == 3 and clf.preparation_.n_features_in_ == 3
        if rows is X:
            clf.save(tmp_path / "m.cavity")
            np.testing.assert_array_equal(
                load(tmp_path / "m.cavity").predict_proba(X), P
            )
        np.testing.assert_allclose(clf.predict_proba(rows), P, atol=1e-5)
    gp = GPRegressor("vi", n_inducing=10, max_epochs=3, random_state=0).fit(X, y)
    assert np.isfinite(gp.predict(X)).all()


def test_new_gaps_are_the_mean_with_a_warning_in_arrays_and_frames():
    X, y = gaps()
    X = np.nan_to_num(X)
    new = np.where(np.eye(3) > 0, np.nan, X[:3])
    for wrap in (np.asarray, lambda rows: pd.DataFrame(rows, columns=["a", "b", "c"])):
        clf = GPClassifier(**FAST).fit(wrap(X), y)
        with pytest.warns(UserWarning, match="training rows"):
            found = clf.predict_proba(wrap(new))
        filled = np.where(np.isnan(new), X.mean(0), new)
        np.testing.assert_allclose(found, clf.predict_proba(wrap(filled)), atol=1e-6)


def test_new_levels_warn_in_files_as_in_frames(tmp_path):
    X, y = gaps()
    frame = pd.DataFrame(np.nan_to_num(X), columns=["a", "b", "c"]).assign(
        d=np.where(y > 0, "u", "v")
    )
    clf = GPClassifier(**FAST).fit(frame, y)
    new = frame[:3].assign(d="w")
    path = tmp_path / "new.parquet"
    new.to_parquet(path)
    for rows in (new, path):
        with pytest.warns(UserWarning, match="training rows"):
            clf.predict_proba(rows)


@pytest.mark.filterwarnings("error", "ignore::sklearn.exceptions.ConvergenceWarning")
def test_sparse_columns_and_na_among_objects_are_what_they_stand_for():
    X, y = gaps()
    plain = pd.DataFrame(np.where(np.isnan(X), 0.0, X), columns=["a", "b", "c"])
    sparse = plain.assign(a=plain["a"].astype(pd.SparseDtype(float, 0.0)))
    P = GPClassifier(**FAST).fit(plain, y).predict_proba(plain)
    for table in (sparse, plain.astype(pd.SparseDtype(float, 0.0))):
        np.testing.assert_array_equal(
            GPClassifier(**FAST).fit(table, y).predict_proba(table), P
        )
    lacking = pd.DataFrame(X, columns=["a", "b", "c"])
    P = GPClassifier(**FAST).fit(lacking, y).predict_proba(lacking)
    objects = lacking.astype(object).where(lacking.notna(), pd.NA)
    np.testing.assert_array_equal(
        GPClassifier(**FAST).fit(objects, y).predict_proba(objects), P
    )


@pytest.fixture(scope="module")
def seen():
    """A model of columns without gaps, and new rows with one."""
    X, y = gaps()
    frame = pd.DataFrame(np.nan_to_num(X), columns=["a", "b", "c"])
    new = frame.head(6).copy()
    new.loc[0, "a"] = np.nan
    with warnings.catch_warnings(action="ignore"):
        return GPClassifier(**FAST).fit(frame, y), new, y[:6]


@pytest.mark.parametrize(
    "call",
    [
        lambda clf, X, y: clf.predict(X),
        lambda clf, X, y: clf.score(X, y),
        lambda clf, X, y: clf.decide(X, Costs(other=1.0)),
        lambda clf, X, y: clf.rank_for_labeling(X),
        lambda clf, X, y: clf.partial_dependence(X, "a"),
        lambda clf, X, y: clf.explain(X, y),
        lambda clf, X, y: clf.explain_rows(X, background=X[1:]),
    ],
)
def test_a_new_gap_is_said_once_per_call_at_the_line_of_the_user(call, seen):
    clf, new, y = seen
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call(clf, new, y)
    (said,) = found
    assert "'a' has missing cells" in str(said.message)
    assert said.filename == __file__
