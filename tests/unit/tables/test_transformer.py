"""A preparation is a scikit-learn transformer."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from cavity import BadInput, Preparation

RNG = np.random.default_rng(0)
COLOUR = RNG.choice(["red", "green", "blue"], 60)
FRAME = pd.DataFrame(
    {
        "size": np.where(RNG.random(60) < 0.1, np.nan, RNG.normal(size=60)),
        "colour": pd.Categorical(COLOUR),
        "open": RNG.random(60) < 0.5,
    }
)
Y = COLOUR == "red"


def test_it_is_cloned_and_set_like_any_transformer():
    prepare = Preparation(ignore=["open"], kinds={"size": "category"}, strict=True)
    again = clone(prepare).set_params(strict=False)
    assert again.get_params() == prepare.get_params() | {"strict": False}
    assert not hasattr(clone(Preparation().fit(FRAME)), "columns_")
    with pytest.raises(NotFittedError):
        prepare.transform(FRAME)


def test_names_in_are_those_of_the_table_and_names_out_those_of_the_features():
    prepare = Preparation("open").fit(FRAME)
    assert (
        prepare.feature_names_in_.tolist() == ["size", "colour"]
        and prepare.n_features_in_ == 2
    )
    assert prepare.get_feature_names_out().tolist() == [
        "size",
        "size missing",
        "colour=blue",
        "colour=green",
        "colour=red",
    ]
    again = Preparation.from_json(prepare.to_json())
    assert again.feature_names_in_.tolist() == ["size", "colour"]


@pytest.mark.parametrize(
    "kind, frame", [("pandas", pd.DataFrame), ("polars", pl.DataFrame)]
)
def test_set_output_gives_frames_with_the_names_and_the_index(kind, frame):
    rows = FRAME.set_index(pd.RangeIndex(100, 160))
    found = Preparation().set_output(transform=kind).fit(rows).transform(rows)
    assert isinstance(found, frame) and list(found.columns) == list(
        Preparation().fit(FRAME).get_feature_names_out()
    )
    np.testing.assert_array_equal(found.to_numpy(), Preparation().fit_transform(FRAME))
    if kind == "pandas":
        assert found.index[0] == 100


def test_it_works_in_pipelines_and_searches():
    pipe = make_pipeline(Preparation(), LogisticRegression())
    search = GridSearchCV(pipe, {"preparation__ignore": [(), ("colour",)]}, cv=3).fit(
        FRAME, Y
    )
    assert (
        search.best_params_ == {"preparation__ignore": ()}
        and search.score(FRAME, Y) == 1
    )
    some = make_column_transformer((Preparation(), ["colour"]), remainder="drop").fit(
        FRAME
    )
    assert some.get_feature_names_out()[0] == "preparation__colour=blue"


@pytest.mark.parametrize(
    "table",
    [
        pl.from_pandas(FRAME),
        pa.Table.from_pandas(FRAME),
        FRAME.astype({"colour": object}),
    ],
)
def test_frames_of_every_library_give_the_same_features(table):
    np.testing.assert_array_equal(
        Preparation().fit_transform(table), Preparation().fit_transform(FRAME)
    )


def test_the_columns_of_an_array_are_those_of_the_training_rows():
    rows = FRAME.to_numpy()
    prepare = Preparation().fit(rows)
    assert prepare.feature_names_in_.tolist() == ["x0", "x1", "x2"]
    np.testing.assert_array_equal(
        prepare.transform(rows)[:, :5], Preparation().fit_transform(FRAME)[:, :5]
    )
    np.testing.assert_array_equal(
        Preparation().fit(FRAME).transform(rows)[:, :5], prepare.transform(rows)[:, :5]
    )
    with pytest.raises(BadInput, match="2 features"):
        prepare.transform(rows[:, :2])


def test_categories_that_are_numbers_stay_categories():
    frame = pd.DataFrame(
        {"code": pd.Categorical([3, 1, 3, 2]), "mixed": ["a", 1, None, "a"]}
    )
    prepare = Preparation().fit(frame)
    assert prepare.names == (
        "code=1",
        "code=2",
        "code=3",
        "mixed=1",
        "mixed=a",
        "mixed missing",
    )
    np.testing.assert_array_equal(
        prepare.transform({"code": [2], "mixed": ["1"]}), [[0, 1, 0, 1, 0, 0]]
    )
