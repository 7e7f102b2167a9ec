"""An ONNX graph of a model of a frame takes raw columns, each with its name, and says
what `predict_proba` says of the frame.
"""

import json

import numpy as np
import onnxruntime
import pandas as pd
import pytest

from cavity import GPClassifier, GPRegressor, Preparation, export
from cavity.common.onnx_graph import ML_DOMAIN, ML_OPSET, Graph, Value
from cavity.errors import BadOption
from cavity.tables.columns.dates import find_season, find_weekdays, find_years
from cavity.tables.columns.text_kind import Text
from cavity.tables.validation import Prepared
from support import latent_columns, without_warnings

QUICK = {"n_inducing": 8, "max_epochs": 4, "random_state": 0, "device": "cpu"}


def make_table(n: int = 90, seed: int = 0) -> pd.DataFrame:
    """Numbers with gaps, text with gaps, whole numbers, a truth value and dates over
    several years.
    """
    rng = np.random.default_rng(seed)
    days = pd.Timestamp("2015-12-20") + pd.to_timedelta(
        rng.integers(0, 1500, n), unit="D"
    )
    frame = pd.DataFrame(
        {
            "mass [g]": np.where(rng.random(n) < 0.2, np.nan, rng.normal(4000, 500, n)),
            "island, or none": rng.choice(["Biscoe", "Dream", "東京"], n),
            "eggs": rng.integers(0, 5, n),
            "banded": rng.random(n) < 0.5,
            "v1": rng.normal(size=n),
            "seen on": days,
        }
    )
    frame.loc[rng.random(n) < 0.15, "island, or none"] = None
    frame.loc[rng.random(n) < 0.1, "seen on"] = pd.NaT
    return frame


def make_labels(table: pd.DataFrame) -> np.ndarray:
    return np.where(
        table["island, or none"] == "Dream", "a", np.where(table["v1"] > 0, "b", "c")
    )


def as_inputs(model, table: pd.DataFrame, dtype=np.float64) -> dict:
    """Return the cells of a frame as the graph takes them, written without the library."""
    kinds = json.loads({p.key: p.value for p in model.metadata_props}["inputs"])
    cells = {}
    for name, kind in kinds.items():
        column = table[name]
        if kind == "text":
            cells[name] = np.array(
                [["" if pd.isna(v) else str(v)] for v in column], dtype=object
            )
        elif kind == "number":
            cells[name] = column.to_numpy(dtype)[:, None]
        else:
            since = (column - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
            cells[name] = since.to_numpy(dtype)[:, None]
    return cells


def run(model, outputs: list[str], cells: dict) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    made = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    assert {i.name for i in made.get_inputs()} == set(cells)
    return made.run(outputs, cells)


@pytest.fixture(scope="module")
def fitted():
    table = make_table()
    return GPClassifier(calibration=None, **QUICK).fit(table, make_labels(table)), table


def test_raw_columns_give_the_probabilities_of_the_frame(fitted):
    clf, table = fitted
    model = export.make_model(clf)
    label, P = run(model, ["label", "probabilities"], as_inputs(model, table))
    np.testing.assert_allclose(P, clf.predict_proba(table), atol=1e-9)
    np.testing.assert_array_equal(label, clf.predict(table))


def test_new_categories_and_missing_cells_count_as_in_python(fitted):
    clf, table = fitted
    new = make_table(40, seed=1)
    new.loc[:9, "island, or none"] = "Atlantis"
    new["eggs"] = new["eggs"].astype(float)
    new.loc[10:19, ["eggs", "v1"]] = np.nan
    model = export.make_model(clf)
    with without_warnings():
        expected = clf.predict_proba(new)
    assert np.abs(expected[:10] - clf.predict_proba(table)[:10]).max() > 1e-3
    np.testing.assert_allclose(
        run(model, ["probabilities"], as_inputs(model, new))[0], expected, atol=1e-9
    )


@pytest.mark.parametrize("text", ["", "NA", "nan", "None", "?"])
def test_every_text_that_stands_for_nothing_is_missing(fitted, text):
    clf, table = fitted
    model = export.make_model(clf)
    cells = as_inputs(model, table[:5])
    cells["island, or none"][:] = text
    empty = table[:5].assign(**{"island, or none": None})
    np.testing.assert_allclose(
        run(model, ["probabilities"], cells)[0], clf.predict_proba(empty), atol=1e-9
    )


def test_inputs_in_single_precision(fitted):
    clf, table = fitted
    model = export.make_model(clf, dtype="float32")
    P = run(model, ["probabilities"], as_inputs(model, table, np.float32))[0]
    assert P.dtype == np.float32
    np.testing.assert_allclose(P, clf.predict_proba(table), atol=1e-4)


def test_prepared_features_are_still_possible(fitted):
    clf, table = fitted
    X = clf.preparation_.encode(table)
    P = run(export.make_model(clf, prepared=True), ["probabilities"], {"X": X})[0]
    np.testing.assert_allclose(P, clf.predict_proba(Prepared(X)), atol=1e-9)


def test_a_regressor_takes_raw_columns():
    table = make_table()
    y = 5 + table["v1"].to_numpy() + (table["island, or none"] == "Dream")
    gp = GPRegressor("vi", **QUICK).fit(table, y)
    model = export.make_model(gp)
    mean, std = run(model, ["mean", "std"], as_inputs(model, table))
    expected = gp.predict(table, return_std=True)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-7)
    np.testing.assert_allclose(std, expected[1], rtol=1e-7)


def test_a_default_model_with_trees_takes_raw_columns():
    table = make_table(150)
    clf = GPClassifier(**QUICK).fit(table, make_labels(table))
    new = pd.concat([make_table(40, seed=1), make_table(5, seed=2).assign(v1=1e4)])
    pool, model = clf._fitted.pool, export.make_model(clf)
    g = pool.gate.at(latent_columns(clf, new)[1])
    assert any(pool.weights) and (g[-5:] < 1e-9).all() and g[:40].mean() > 0.5
    P = run(model, ["probabilities"], as_inputs(model, new))[0]
    np.testing.assert_allclose(P, clf.predict_proba(new), rtol=0, atol=1e-6)


def test_features_are_those_of_python_to_the_last_bit():
    """Trees may split between any two numbers: cosines of two weekdays must not differ
    by rounding alone.
    """
    from cavity.export import raw_columns

    table = make_table(2000)
    prepare, graph = Preparation().fit(table), Graph()
    helper, kind = graph.onnx.helper, graph.onnx.TensorProto.DOUBLE
    X, inputs, kinds = raw_columns.add_raw_columns(graph, prepare, kind)
    output = helper.make_tensor_value_info(X.name, kind, ["n", "D"])
    made = helper.make_model(
        helper.make_graph(graph.nodes, "features", inputs, [output], graph.constants),
        opset_imports=[
            helper.make_opsetid("", 18),
            helper.make_opsetid(ML_DOMAIN, ML_OPSET),
        ],
        ir_version=8,
    )
    helper.set_model_props(made, {"inputs": json.dumps(kinds)})
    expected = prepare.encode(table)
    np.testing.assert_array_equal(
        run(made, [X.name], as_inputs(made, table))[0], expected
    )
    cosine = expected[
        table["seen on"].notna(),
        list(prepare.get_feature_names_out()).index("seen on weekday cos"),
    ]
    assert len(np.unique(cosine)) == 4


def test_texts_have_the_same_bits_as_in_python():
    """So that a threshold at the value of a frequent text sends it the same way."""
    from cavity.export import raw_columns

    rng = np.random.default_rng(0)
    words = np.array(["ltd", "limited", "hotel", "agency", "north", "tours", "東京"])
    names = [" ".join(rng.choice(words, 3)) + f" {k}" for k in range(300)]
    table = pd.DataFrame({"company": [*names, *names, *["none given"] * 200]})
    prepare = Preparation().fit(table, table["company"].str.contains("hotel"))
    assert isinstance(prepare.columns_[0], Text)
    table.loc[:9, "company"] = None
    table.loc[10:19, "company"] = "  NEW   Hotel"
    graph = Graph()
    helper, kind = graph.onnx.helper, graph.onnx.TensorProto.DOUBLE
    X, inputs, kinds = raw_columns.add_raw_columns(graph, prepare, kind)
    output = helper.make_tensor_value_info(X.name, kind, ["n", "D"])
    made = export._finish(graph, inputs, [output], {"inputs": json.dumps(kinds)})
    cells = as_inputs(made, table)
    for n in (800, 1):
        few = {name: column[:n] for name, column in cells.items()}
        with without_warnings():
            expected = prepare.encode(table[:n])
        np.testing.assert_array_equal(run(made, [X.name], few)[0], expected)


def test_the_calendar_of_the_graph_is_that_of_numpy():
    """Every day of 1896 to 2104 around leap years, and a few far ones."""
    from cavity.export import raw_columns

    days = np.concatenate(
        [
            np.arange(-27_100, 49_400, 13),
            [-700_000, -1, 0, 59, 60, 2_000_000, 10_956.75],
        ]
    )
    graph = Graph()
    value = Value(graph, "days")
    year = raw_columns._find_year(graph, graph.op("Floor", value))
    season = (value - raw_columns._first_day(year)) / raw_columns.YEAR
    helper, kind = graph.onnx.helper, graph.onnx.TensorProto.DOUBLE
    outputs = [
        helper.make_tensor_value_info(v.name, kind, ["n"]) for v in (year, season)
    ]
    inputs = [helper.make_tensor_value_info("days", kind, ["n"])]
    body = helper.make_graph(graph.nodes, "days", inputs, outputs, graph.constants)
    made = helper.make_model(
        body, opset_imports=[helper.make_opsetid("", 18)], ir_version=8
    )
    found = run(made, [year.name, season.name], {"days": days.astype(np.float64)})
    np.testing.assert_array_equal(found[0], find_years(days))
    np.testing.assert_allclose(found[1], find_season(days), atol=1e-12)
    assert find_weekdays(np.array([0.0]))[0] == 3  # 1970-01-01 was a Thursday


def test_what_a_graph_cannot_do_is_refused():
    table = make_table().rename(columns={"v1": "label"})
    y = make_table()["v1"].to_numpy() > 0
    with pytest.raises(BadOption, match="'label'"):
        export.make_model(GPClassifier(calibration=None, **QUICK).fit(table, y))
