"""Prediction from files and other sources: what the same rows in memory get, and never
more than a block of them at a time.
"""

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import accuracy_score

from cavity import BadInput, BadOption, GPClassifier
from cavity.prediction import predict as prediction
from cavity.tables.array_sources import Arrays
from cavity.tables.columns.preparation import Preparation
from cavity.tables.files.arrow_source import Arrow
from cavity.tables.validation import Prepared, prepared_features
from support import without_warnings

N, BLOCK = 230, 50
rng = np.random.default_rng(0)
X = rng.normal(size=(N, 3)) * [1.0, 10.0, 0.1]
Y = np.array(["red", "green", "blue"])[
    (X / [1.0, 10.0, 0.1] + 0.3 * rng.normal(size=(N, 3))).argmax(1)
]
W = rng.uniform(0.5, 2.0, N)


def table(rows=slice(None)):
    """The columns of the training rows in another order, among others."""
    columns = dict(
        label=Y[rows], c=X[rows, 2], a=X[rows, 0], note=Y[rows], w=W[rows], b=X[rows, 1]
    )
    return pa.table(columns)


@pytest.fixture(scope="module")
def models():
    """The same model with and without names of columns."""
    with without_warnings():
        options = dict(
            n_inducing=6, max_epochs=3, batch_size=60, random_state=0, method="sep"
        )
        frame = table().select(["a", "b", "c"]).to_pandas()
        named = GPClassifier(**options).fit(frame, Y)
        return {"named": named, "plain": GPClassifier(**options).fit(X, Y)}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr("cavity.prediction.blocks.BLOCK_BYTES", 8 * 3 * BLOCK)


def parquet(folder):
    for i, start in enumerate(range(0, N, 90)):
        pq.write_table(
            table(slice(start, start + 90)), folder / f"{i}.parquet", row_group_size=40
        )
    return str(folder)


def dataset(folder):
    return ds.dataset(parquet(folder))


def chunks(*columns):
    return lambda: (tuple(c[i : i + 64] for c in columns) for i in range(0, N, 64))


SOURCES = {
    "parquet": ("named", parquet),
    "arrow table": ("named", lambda folder: table()),
    "dataset": ("named", dataset),
    "table of the columns alone": (
        "plain",
        lambda folder: table().select(["a", "b", "c"]),
    ),
    "source": ("plain", lambda folder: Arrays(X, Y)),
    "batches": ("plain", lambda folder: chunks(X, Y, W)),
    "batches without labels": (
        "plain",
        lambda folder: lambda: (X[i : i + 64] for i in range(0, N, 64)),
    ),
    "list of batches": ("plain", lambda folder: list(chunks(X, Y)())),
    "generator": ("plain", lambda folder: chunks(X, Y)()),
}


@pytest.fixture(params=SOURCES)
def case(request, models, tmp_path):
    """A model, its predictions for rows in memory, and what makes the same rows as a
    source.
    """
    kind, make = SOURCES[request.param]
    rows = X if kind == "plain" else table().select(["a", "b", "c"]).to_pandas()
    return models[kind], rows, lambda: make(tmp_path)


@pytest.mark.parametrize(
    "call", ["predict", "predict_proba", "predict_log_proba", "predict_latent"]
)
def test_a_source_gets_the_predictions_of_its_rows_in_memory(case, call):
    model, rows, make = case
    np.testing.assert_array_equal(
        getattr(model, call)(make()), getattr(model, call)(rows)
    )


def test_no_more_rows_than_a_block_are_looked_at_together(case, monkeypatch):
    model, rows, make = case
    seen, latent = [], prediction.predict_latent
    monkeypatch.setattr(
        prediction, "predict_latent", lambda m, x: seen.append(len(x)) or latent(m, x)
    )
    for data in (make(), rows):
        seen.clear()
        model.predict_proba(data)
        assert seen == [BLOCK] * 4 + [30]


def test_a_source_has_the_score_of_its_rows_in_memory(models, tmp_path):
    plain, named = models["plain"], models["named"]
    found, weighted = (
        accuracy_score(Y, plain.predict(X), sample_weight=w) for w in (None, W)
    )
    assert plain.score(X, Y) == found and plain.score(X, Y, W) == pytest.approx(
        weighted, rel=1e-12
    )
    folder = tmp_path / "parts"
    folder.mkdir()
    for score in (
        plain.score(Arrays(X, Y)),
        plain.score(chunks(X, Y)),
        named.score(parquet(folder), target="label"),
        named.score(table(), target="label"),
        named.score(table(), Y),
    ):
        assert score == pytest.approx(found, rel=1e-12)
    for score in (
        plain.score(chunks(X, Y, W)),
        named.score(folder, target="label", weight="w"),
    ):
        assert score == pytest.approx(weighted, rel=1e-12)


def test_a_model_that_knows_how_its_columns_were_prepared_prepares_new_ones_alike(
    tmp_path,
):
    mixed = pa.table(
        {"a": X[:, 0], "shade": np.where(X[:, 1] > 0, "light", "dark"), "label": Y}
    )
    prepare = Preparation(target="label").fit(mixed)
    with without_warnings():
        model = GPClassifier(
            "sep", n_inducing=6, max_epochs=2, batch_size=60, random_state=0
        )
        model.fit(Arrow(mixed, model=prepared_features("GPClassifier", prepare)))
        expected = model.predict_proba(Prepared(prepare.transform(mixed)))
    pq.write_table(mixed.drop_columns(["label"]), tmp_path / "new.parquet")
    np.testing.assert_array_equal(
        model.predict_proba(tmp_path / "new.parquet"), expected
    )
    assert model.score(mixed) == np.mean(model.classes_[expected.argmax(1)] == Y)
    with pytest.raises(BadInput, match="'shade'"):
        model.predict(mixed.drop_columns(["shade"]))


def bad_cell(folder):
    columns = table().to_pydict()
    columns["b"][70] = None
    pq.write_table(pa.table(columns), folder / "t.parquet")
    return folder / "t.parquet"


@pytest.mark.parametrize(
    "kind, call, words",
    [
        ("named", lambda m, d: m.predict(table().drop_columns(["b"])), "the source lacks 'b', which the model was fitted on"),
        ("named", lambda m, d: m.predict(table().set_column(5, "b", pa.array(Y))), r"column 'b' \(string\).*not numeric"),
        ("named", lambda m, d: m.predict(bad_cell(d)), r"t\.parquet.*column 'b': 1 missing or NaN"),
        ("named", lambda m, d: m.predict(d / "none.parquet"), "does not exist"),
        ("named", lambda m, d: m.predict(str(d)), "does not contain, a file that can "
                                                  "be read"),
        ("named", lambda m, d: m.predict(pa.array([1.0])), "DoubleArray"),
        ("named", lambda m, d: m.predict(table(slice(0, 0))), "no rows to predict"),
        ("named", lambda m, d: m.score(table()), "target= is missing.*one of"),
        ("named", lambda m, d: m.score(table(), target="colour"), "target='colour' is "
                                                                  "not a column"),
        ("named", lambda m, d: m.score(table(), target="w"), "Unknown label type: "
                                                             "continuous"),
        ("named", lambda m, d: m.score(table().append_column("n", pa.array(np.arange(N))), target="n"), "labels such as 0"),
        ("plain", lambda m, d: m.predict(table()), r"X has 6 features \('label'.*expecting 3.*without names"),
        ("plain", lambda m, d: m.predict(d / "X.npy"), "does not exist"),
        ("plain", lambda m, d: m.predict(Arrays(X[:, :2], Y)), "X has 2 features, but "
                                                               "GPClassifier is "
                                                               "expecting 3"),
        ("plain", lambda m, d: m.predict(lambda: iter([])), "no rows to predict"),
        ("plain", lambda m, d: m.predict(lambda: iter(["a"])), "batch 0 is a str"),
        ("plain", lambda m, d: m.score(X), "y to be passed"),
        ("plain", lambda m, d: m.score(X, Y, target="label"), "target= has no meaning"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_predicted_say_why(models, kind, call, words, tmp_path):
    with pytest.raises((BadInput, BadOption), match=words):
        call(models[kind], tmp_path)
