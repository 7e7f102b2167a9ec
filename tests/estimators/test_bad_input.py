"""Bad input gives an error that names what, where and what to try, or a correct result."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.exceptions import NotFittedError

from cavity import BadInput, GPClassifier, Training
from cavity.fitting.options import nest
from support import ALONE, toy


def model(method="ep", **options):
    return GPClassifier(
        method,
        **nest(
            **{"n_inducing": 8, "max_epochs": 3, "tol": 0.01, "random_state": 0}
            | options
        ),
    )


def says(error, *words):
    for word in words:
        assert word in str(error.value), f"{word!r} is not in {error.value}"


def sane(fitted, X):
    p = fitted.predict_proba(X)
    np.testing.assert_allclose(p.sum(1), 1.0, atol=1e-12)
    assert np.isfinite(np.stack(fitted.predict_latent(X))).all()
    assert np.isfinite(fitted.log_marginal_likelihood_)
    return p


# ---------------------------------------------------------------- cells
def spoil(X):
    X = X.copy()
    X[[1, 5], 0] = np.nan
    X[2, 2] = np.inf
    X[3, 2] = np.nan
    return X


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_missing_cells_of_a_frame_have_names_at_fit_and_at_predict(three, frame):
    X, y, _ = three
    names = ["height", "weight", "age"]
    good, bad = (frame(dict(zip(names, part.T, strict=True))) for part in (X, spoil(X)))
    for call in (
        lambda: model().fit(bad, y),
        lambda: model().fit(good, y).predict(bad),
    ):
        with pytest.raises(BadInput) as error:
            call()
        says(error, "column 'height': 2 NaN", "column 'age': 1 NaN and 1 infinite")


@pytest.mark.parametrize(
    "cells", [[1.0, None], pd.array([1, None], dtype="Int64")], ids=["None", "Int64"]
)
def test_none_and_nullable_integers_are_missing_cells(three, cells):
    X, y, _ = three
    column = pd.concat(
        [pd.Series(cells, dtype=getattr(cells, "dtype", object))] * 30,
        ignore_index=True,
    )
    fitted = model().fit(pd.DataFrame({"a": X[:, 0], "b": column}), y)
    assert fitted.preparation_.names == ("a", "b", "b missing")


def test_text_in_a_numeric_column_is_named(three):
    X, y, _ = three
    table = X.astype(object)
    table[7, 1] = "about 3"
    for rows in (table, table.tolist()):
        with pytest.raises(BadInput) as error:
            model().fit(rows, y)
        says(error, "'about 3'", "pandas.DataFrame(X)")
    fitted = model().fit(pd.DataFrame(X, columns=["a", "b", "c"]), y)
    blank = pd.DataFrame(
        np.where(table == "about 3", np.nan, table).astype(float),
        columns=["a", "b", "c"],
    )
    with pytest.warns(UserWarning, match="'b'"):
        found = fitted.predict_proba(pd.DataFrame(table, columns=["a", "b", "c"]))
    with pytest.warns(UserWarning, match="missing cells"):
        np.testing.assert_array_equal(found, fitted.predict_proba(blank))


# ---------------------------------------------------------------- shapes
@pytest.mark.parametrize("make", [np.asarray, pd.DataFrame, pl.DataFrame])
def test_empty_input_says_what_is_empty(make):
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        model().fit(make(np.zeros((0, 3))), np.zeros(0))
    with pytest.raises(
        ValueError, match=r"0 (feature|sample)\(s\)|no columns|no features"
    ):
        model().fit(make(np.zeros((5, 0))), np.zeros(5))


def test_whatever_is_no_table_is_an_error_of_ours_and_of_the_type_that_scikit_learn_expects(
    three,
):
    X, y, _ = three
    fitted = model().fit(X, y)
    frame = pd.DataFrame(X, columns=["a", "b", 3])
    tables = (
        [[1, 2, 3], [4]] * 30,
        X[:, 0],
        X[None],
        X + 1j,
        None,
        1.0,
        pd.Series(y),
        [[10**400, 1, 2]] * 60,
    )
    for table, kind in [
        *((table, ValueError) for table in tables),
        (np.matrix(X), TypeError),
        (frame, TypeError),
    ]:
        for call in (lambda X: model().fit(X, y), fitted.predict_proba):
            with pytest.raises(BadInput) as error:
                call(table)
            assert isinstance(error.value, kind)


def test_predict_wants_the_columns_of_fit(three):
    X, y, new = three
    fitted = model().fit(X, y)
    with pytest.raises(ValueError, match="2 features, but GPClassifier is expecting 3"):
        fitted.predict(new[:, :2])
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    named = model().fit(frame, y)
    with pytest.raises(ValueError, match=r"unseen at fit time:\n- z"):
        named.predict(frame.rename(columns={"b": "z"}))
    with pytest.raises(ValueError, match="same order"):
        named.predict(frame[["c", "b", "a"]])


@pytest.mark.parametrize(
    "call", ["predict", "predict_proba", "predict_log_proba", "predict_latent", "score"]
)
def test_prediction_before_fit(three, call):
    X, y, _ = three
    arguments = (X, y) if call == "score" else (X,)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(GPClassifier(), call)(*arguments)


# ---------------------------------------------------------------- labels and weights
def test_one_class_only(three):
    X, y, _ = three
    with pytest.raises(BadInput, match=r"'cat'.*two"):
        model().fit(X, np.full(len(y), "cat"))
    with pytest.raises(BadInput, match=r"'2'.*weight 0"):
        model().fit(X, y, sample_weight=(y == 2).astype(float))


def test_labels_that_are_none(three):
    X, y, _ = three
    with pytest.raises(ValueError, match="y to be passed"):
        model().fit(X, None)
    with pytest.raises(BadInput, match=r"60 .*59"):
        model().fit(X, y[:-1])
    with pytest.raises(BadInput, match="y contains NaN"):
        model().fit(X, np.where(y == 0, np.nan, y))
    for missing in (None, np.nan, pd.NA):
        labels = np.array(["a", "b", "c"], dtype=object)[y]
        labels[:4] = missing
        with pytest.raises(BadInput, match="4 rows"):
            model().fit(X, labels)


def test_labels_that_are_no_classes(three):
    X, y, _ = three
    pairs = np.fromiter([(1, 2), (3, 4)] * 30, dtype=object)
    for labels, words in (
        (X[:, 0], "continuous"),
        (np.c_[y, y], r"1d array.*\(60, 2\)"),
        (
            np.array(["a", 1, "b"], dtype=object)[y],
            r"cannot be ordered \(int, str\).*astype",
        ),
        *(
            [(np.array([b"a", b"b", b"c"])[y], "bytes")]
            if sklearn.__version__ >= "1.7"
            else []
        ),  # older ones take them
        (pairs, "[Ss]equence of sequences"),
        (y + 0j, "Complex"),
        ([10 ** (30 + int(c)) for c in y], "Unknown label type"),
    ):
        with pytest.raises(BadInput, match=words):
            model().fit(X, labels)


def test_weights_that_are_too_heavy_for_their_sums(three):
    X, y, _ = three
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for heavy in (1e300, 1e308):
            with pytest.raises(BadInput, match=r"sample_weight.*divide"):
                model().fit(X, y, sample_weight=np.full(len(y), heavy))
        with pytest.raises(BadInput, match="class_weight"):
            model(class_weight={0: 1e300, 1: 1, 2: 1}).fit(X, y)


# ---------------------------------------------------------------- tables that are odd, not wrong
def test_all_rows_alike_gives_the_frequencies(method):
    X = np.ones((60, 2))
    y = np.repeat([0, 1, 2], [30, 20, 10])
    p = sane(model(method, max_epochs=60).fit(X, y), X[:1])[0]
    assert p[0] > p[1] > p[2]
    np.testing.assert_allclose(p, [1 / 2, 1 / 3, 1 / 6], atol=0.1)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -1e12, 1e-12])
def test_a_constant_column_is_no_column(three, method, value):
    X, y, new = three
    with_it = model(method).fit(np.c_[X, np.full(len(X), value)], y)
    without = model(method).fit(X, y)
    p = with_it.predict_proba(np.c_[new, np.full(len(new), value)])
    np.testing.assert_allclose(p, without.predict_proba(new), atol=1e-8, rtol=0)
    np.testing.assert_allclose(with_it.inducing_points_[..., 3], value, rtol=1e-9)


@pytest.mark.parametrize("shifted", [lambda X: X + 1e8, lambda X: X * 1e39])
def test_columns_that_float32_cannot_hold_are_refused(shifted):
    X, y = toy(30, 3)
    with pytest.raises(BadInput, match=r"column 0.*dtype='float32'"):
        GPClassifier(training=Training(dtype="float32"), max_epochs=2).fit(
            shifted(X), y
        )


# ---------------------------------------------------------------- cells far outside all others
def outlier_table(cell):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    X[0, 1] = cell
    return X, y


@pytest.mark.parametrize("cell", [1e300, -1.7e308, 1e7])
@pytest.mark.parametrize("mixed", [False, True])
def test_a_cell_far_outside_all_others_is_limited_with_a_warning(cell, mixed):
    X, y = outlier_table(cell)
    name = "'b'" if mixed else "1"
    if mixed:
        X = pd.DataFrame(X, columns=list("abc")).assign(kind=["u", "v"] * 40)
    with pytest.warns(UserWarning, match=rf"column {name}: 1 cell"):
        fitted = GPClassifier(random_state=0, **ALONE).fit(X, y)
    assert fitted.score(X[1:], y[1:]) > 0.95
    assert np.isfinite(fitted.predict_proba(X)).all()


def test_a_column_of_numbers_too_large_for_their_spread_is_named():
    X, y = outlier_table(0.0)
    X[:, 1] = np.where(X[:, 1] > 0, 1.7e308, -1.7e308)
    for table, name in (
        (X, "column 1"),
        (pd.DataFrame(X, columns=list("abc")), "column 'b'"),
    ):
        with pytest.raises(BadInput, match=rf"{name}.*units"):
            model().fit(table, y)


@pytest.mark.parametrize("unit", ["D", "us", "ns"])
def test_an_array_of_dates_is_a_table_of_dates(three, unit):
    _, y, _ = three
    days = (
        pd.date_range("2020-01-01", periods=len(y))
        .to_numpy()[:, None]
        .astype(f"datetime64[{unit}]")
    )
    assert model().fit(days, y).preparation_.names[0] == "x0 days"
