"""Frames with mixed columns and missing cells: fitted and predicted as they are, by
every method of the estimators.
"""

import enum
import re
import uuid
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from cavity import BadInput, GPClassifier, GPRegressor, Preparation
from cavity.fitting.options import nest
from cavity.tables.validation import Prepared
from support import without_warnings

RNG = np.random.default_rng(0)
N = 80
COLOUR, SIZE = RNG.choice(["red", "green", "blue"], N), RNG.normal(size=N)
FRAME = pd.DataFrame(
    {
        "size": np.where(np.arange(N) % 9 == 0, np.nan, SIZE),
        "colour": pd.Categorical(COLOUR),
        "open": RNG.random(N) < 0.5,
        "same": 1.0,
    }
)
Y = np.where((COLOUR == "red") ^ (SIZE > 0.5), "yes", "no")
VALUE = SIZE + 2.0 * (COLOUR == "red")


def model(**options):
    return GPClassifier(
        "sep",
        **nest(
            **{"n_inducing": 8, "max_epochs": 3, "tol": 1.0, "random_state": 0}
            | options
        ),
    )


@pytest.fixture(scope="module")
def fitted():
    with without_warnings():
        return model().fit(FRAME, Y)


def test_a_fit_is_that_of_the_prepared_rows(fitted):
    prepare = Preparation().fit(FRAME)
    X = prepare.encode(FRAME)
    expected = model().fit(Prepared(X, prepare), Y)
    np.testing.assert_array_equal(
        fitted.predict_proba(FRAME), expected.predict_proba(Prepared(X))
    )
    piped = make_pipeline(Preparation(), model()).fit(FRAME, Y)
    np.testing.assert_array_equal(
        piped.predict_proba(FRAME), model().fit(X, Y).predict_proba(X)
    )
    assert fitted.n_features_in_ == 4 and fitted.feature_names_in_.tolist() == list(
        FRAME
    )


def test_frames_of_numbers_are_not_prepared():
    numbers = pd.DataFrame({"a": SIZE, "b": RNG.normal(size=N), "c": COLOUR == "red"})
    frames = [numbers, pl.from_pandas(numbers), pa.Table.from_pandas(numbers)]
    array = numbers.to_numpy(dtype=float)
    expected = model().fit(array, Y).predict_proba(array)
    for frame in frames:
        clf = model().fit(frame, Y)
        assert not hasattr(clf, "preparation_")
        np.testing.assert_array_equal(clf.predict_proba(frame), expected)


@pytest.mark.parametrize("more", [{}, {"colour": COLOUR}], ids=["numbers", "mixed"])
@pytest.mark.parametrize(
    "frame", [pd.DataFrame, pl.DataFrame, lambda columns: pa.table(dict(columns))]
)
def test_row_numbers_are_left_out_in_any_order_with_a_warning(frame, more):
    number = RNG.permutation(2 * N)[:N]
    columns = {"Unnamed: 0": number, "a": SIZE, **more}
    with pytest.warns(UserWarning, match="'Unnamed: 0'"):
        clf = model().fit(frame(columns), Y)
    P = clf.predict_proba(frame(columns))
    np.testing.assert_array_equal(
        P, clf.predict_proba(frame({**columns, "Unnamed: 0": number[::-1]}))
    )
    np.testing.assert_array_equal(P, clf.predict_proba(frame({"a": SIZE, **more})))


TWICE = pd.DataFrame(np.column_stack([SIZE, SIZE, SIZE]), columns=["b", "a", "a"])
COMPLEX = pd.DataFrame({"a": SIZE, "z": SIZE + 1j})
LISTS = {
    "lists": [[1, 2]] * N,
    "dicts": [{"q": 1}] * N,
    "arrays": [np.ones(2)] * N,
}
FOREIGN = {
    "names": (TWICE, "two columns have the name 'a'"),
    "numbers as names": (
        TWICE.set_axis([0, 1, 1], axis=1),
        "two columns have the name 1",
    ),
    "names in Arrow": (
        pa.table([SIZE, SIZE], names=["a", "a"]),
        "two columns have the name 'a'",
    ),
    "names, mixed": (TWICE.assign(colour=COLOUR), "two columns have the name 'a'"),
    "complex": (COMPLEX, "Complex data not supported: column 'z'"),
    "complex, mixed": (
        COMPLEX.assign(colour=COLOUR),
        "Complex data not supported: column 'z'",
    ),
    "complex objects": (
        COMPLEX.astype({"z": object}),
        "Complex data not supported: column 'z'",
    ),
    "a complex array": (COMPLEX.to_numpy(), "Complex data not supported"),
}


TABLES = {
    "1e308": (
        pd.DataFrame({"a": SIZE / np.abs(SIZE).max() * 1e308}),
        "column 'a' has numbers that are too large",
    ),
    "many digits": (
        pd.DataFrame({"a": pd.Series([10**400, 1] * (N // 2), dtype=object)}),
        "column 'a' has a whole number",
    ),
    "a lazy frame": (pl.LazyFrame({"a": SIZE}), "X is a LazyFrame"),
    "records": ([{"a": 1.0}] * N, "X is a list of dicts"),
    "a structured array": (
        np.array([(1.0,)] * N, dtype=[("a", float)]),
        "a structured array",
    ),
}


def test_a_column_without_a_name_is_not_dropped_silently():
    x = np.random.default_rng(0).normal(size=40)
    table = pd.DataFrame({"": x, "place": ["a", "b"] * 20})
    with pytest.warns(UserWarning, match="no name"):
        GPClassifier(n_inducing=5, effort="fast", max_epochs=2).fit(table, x > 0)


@pytest.mark.parametrize("name", TABLES)
def test_tables_that_must_be_converted_are_refused(name):
    table, words = TABLES[name]
    with pytest.raises(BadInput, match=words):
        model().fit(table, Y)


@pytest.mark.parametrize("name", FOREIGN)
def test_columns_of_no_kind_are_named(name):
    table, words = FOREIGN[name]
    with pytest.raises(BadInput, match=words):
        model().fit(table, Y)
    with pytest.raises(BadInput, match=words):
        Preparation().fit(table)


@pytest.mark.parametrize("name", [*LISTS, "polars"])
def test_nested_cells_are_ignored_with_a_warning(name):
    cells = pd.Series(LISTS.get(name, LISTS["lists"]), dtype=object)
    frame = pl.DataFrame if name == "polars" else pd.DataFrame
    with pytest.raises(BadInput, match=r"'z'.*row 1"):
        model().fit(pd.DataFrame({"a": SIZE, "z": [[1], *SIZE[1:]]}), Y)
    with pytest.warns(UserWarning, match="'z'"):
        assert model().fit(frame({"a": SIZE, "z": cells}), Y).preparation_.inputs == (
            "a",
        )


def test_columns_of_no_kind_are_named_in_new_rows_too(fitted):
    numbers = model().fit(pd.DataFrame({"a": SIZE, "z": SIZE}), Y)
    for z, words in (
        (COMPLEX["z"], FOREIGN["complex"][1]),
        (LISTS["lists"], "list"),
        (LISTS["dicts"], "struct"),
    ):
        with pytest.raises(BadInput, match=words):
            numbers.predict(pd.DataFrame({"a": SIZE, "z": z}))
    with pytest.raises(BadInput, match="'size'"):
        fitted.predict(pd.concat([FRAME, FRAME[["size"]]], axis=1))


def test_columns_are_found_by_name_and_what_is_new_is_said_in_one_warning(fitted):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(
            fitted.predict_proba(FRAME[["open", "colour", "size"]]),
            fitted.predict_proba(FRAME),
        )
    new = FRAME.assign(colour=["mauve", None, *COLOUR[2:]], more=1)
    words = [
        r"categories that the.*\(1 cell\)",
        r"missing cells.*\(1 cell\)",
        r"'more' \(80 cells\)",
    ]
    for table in (new, pa.Table.from_pandas(new)):
        with pytest.warns(UserWarning) as caught:
            P = fitted.predict_proba(table)
        (said,) = (str(w.message) for w in caught)
        assert all(re.search(word, said) for word in words)
        np.testing.assert_array_equal(P[2:], fitted.predict_proba(FRAME)[2:])
    with pytest.raises(BadInput, match="'size'"):
        fitted.predict(FRAME.drop(columns="size"))


def test_an_array_has_the_raw_columns(fitted):
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        P = fitted.predict_proba(FRAME.to_numpy())
    np.testing.assert_array_equal(P, fitted.predict_proba(FRAME))
    with pytest.raises(BadInput, match="6 features"):
        fitted.predict(fitted.preparation_.transform(FRAME))


def test_more_rows_more_ways(fitted):
    """partial_fit, validation rows, uncertainty, ranking, latent values,
    cross-validation.
    """
    grown = model().partial_fit(FRAME[:50], Y[:50]).partial_fit(FRAME[50:], Y[50:])
    assert grown.predict_proba(FRAME).shape == (
        N,
        2,
    ) and grown.feature_names_in_.tolist() == list(FRAME)
    stopped = model().fit(FRAME[20:], Y[20:], eval_set=(FRAME[:20], Y[:20]))
    assert "validation_nll" in stopped.history_[0]
    assert (
        fitted.predict_uncertainty(FRAME).total.shape
        == (N,)
        == fitted.rank_for_labeling(FRAME).rows.shape
    )
    assert fitted.predict_latent(FRAME)[0].shape == (N,)
    assert len(cross_val_score(model(), FRAME, Y, cv=2)) == 2


def test_a_regressor_takes_frames_too():
    gp = GPRegressor("vi", n_inducing=10, max_epochs=5, random_state=0).fit(
        FRAME, VALUE
    )
    mean, std = gp.predict(FRAME, return_std=True)
    joint, _ = gp.predict(pl.from_pandas(FRAME), return_cov=True)
    np.testing.assert_allclose(joint, mean, rtol=1e-8)
    assert gp.score(FRAME, VALUE) > 0.5 and (std > 0).all()


def test_files_with_mixed_columns_are_prepared_out_of_core(tmp_path, fitted):
    pq.write_table(
        pa.Table.from_pandas(FRAME.assign(y=Y)),
        tmp_path / "t.parquet",
        row_group_size=30,
    )
    read = model().fit(tmp_path / "t.parquet", target="y")
    np.testing.assert_allclose(
        read.predict_proba(FRAME), fitted.predict_proba(FRAME), rtol=1e-6
    )
    assert read.feature_names_in_.tolist() == list(FRAME)
    assert read.score(tmp_path / "t.parquet", target="y") == read.score(FRAME, Y)
    gaps = pa.table({"a": [None, *SIZE[1:]], "y": Y})
    assert model().fit(gaps, target="y").preparation_.names == ("a", "a missing")


SIDE = enum.Enum("SIDE", "left right")
CELLS = {
    "bins": pd.cut(SIZE, 4),
    "intervals": pd.arrays.IntervalArray.from_breaks(
        np.arange(N + 1) // 20 * 1.0 + np.arange(N + 1)
    ),
    "months": pd.period_range("2020-01", periods=N, freq="M"),
    "members": [SIDE.left, SIDE.right] * (N // 2),
    "identifiers": [uuid.UUID(int=i) for i in range(N)],
}


@pytest.mark.parametrize(
    "beside", [{}, {"colour": COLOUR}], ids=["alone", "beside text"]
)
@pytest.mark.parametrize("name", CELLS)
def test_cells_of_pandas_and_python_objects_are_categories_dates_or_ignored(
    name, beside
):
    frame = pd.DataFrame({"size": SIZE, name: CELLS[name], **beside})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of columns that are ignored
        clf = model().fit(frame, Y)
        assert set(clf.predict(frame)) <= {"yes", "no"}
    kinds = {"bins": "Category", "members": "Category", "months": "Date"}
    found = {column.name: type(column).__name__ for column in clf.preparation_.columns_}
    assert found.get(name) == kinds.get(name)


def test_a_dict_of_columns_is_a_table():
    columns = {"size": list(SIZE), "colour": list(COLOUR)}
    clf = model().fit(columns, Y)
    np.testing.assert_array_equal(
        clf.predict_proba(columns),
        model().fit(pd.DataFrame(columns), Y).predict_proba(pd.DataFrame(columns)),
    )
    assert clf.score(columns, Y) > 0.5


def test_labels_in_arrow_may_lack_cells_and_are_refused():
    with pytest.raises(BadInput, match="y contains NaN"):
        model().fit(FRAME, pa.array([None, *Y[1:]]))
    with pytest.raises(BadInput, match="y contains NaN"):
        model().fit(FRAME, pa.chunked_array([pa.array([None, *range(1, N)])]))
