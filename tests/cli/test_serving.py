"""cavity report, export, serve and the columns of uncertainty: through the commands, good input and bad."""

import json
import re

import numpy as np
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

import cavity
from cavity.cli import serving
from cavity.cli.predicting import Model
from cavity.intake.frames import Prepared
from cli.penguins import main as write_penguins
from cli.running import TRAIN, run
from support import toy

QUICK = ("--n-inducing", "6", "--max-epochs", "5")


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("birds")
    write_penguins(folder)
    made = run("fit", folder / "penguins.csv", *TRAIN, *QUICK, "--out", folder / "m")
    assert made.exit_code == 0, made.output
    return folder


def test_predict_adds_what_it_does_not_know(birds):
    done = run("predict", birds / "m", birds / "penguins.csv", "--out", birds / "p.csv", "--uncertainty")
    assert done.exit_code == 0, done.output
    found = np.genfromtxt(birds / "p.csv", delimiter=",", names=True, dtype=None, encoding=None)
    total, parts = found["total"], found["aleatoric"] + found["epistemic"]
    np.testing.assert_allclose(total, parts, atol=0.02)
    assert (found["epistemic"] >= 0).all()


def test_report_of_a_model_and_of_rows(birds):
    alone = run("report", birds / "m", "--out", birds / "alone.html")
    assert alone.exit_code == 0, alone.output
    assert "Model card" in (birds / "alone.html").read_text()
    done = run(
        "report", birds / "m", birds / "penguins.csv", "--out", birds / "rows.html", "--rows", 50, "--json"
    )
    assert done.exit_code == 0, done.output
    said = json.loads(re.search(r"^\{.*\}$", done.output, re.MULTILINE).group())
    assert said["shown"] == 50 < said["rows"]
    assert "Confusion matrix" in (birds / "rows.html").read_text()


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (("report", "{m}", "nowhere.csv"), 1, "does not exist"),
        (("report", "{m}", "{csv}", "--target", "colour"), 1, "no column 'colour'"),
        (("report", "{csv}"), 1, "not a cavity file"),
        (("export", "{m}"), 2, "--onnx FILE"),
        (("export", "{m}", "--onnx", "x.onnx", "--dtype", "int8"), 2, "dtype='int8'"),
        (("export", "{m}", "--onnx", "/nowhere/x.onnx"), 1, "could not be written"),
        (("serve", "nowhere.cavity"), 1, "does not exist"),
    ],
)
def test_bad_input_of_report_export_and_serve(birds, arguments, code, words):
    done = run(*(a.format(m=birds / "m", csv=birds / "penguins.csv") for a in arguments))
    assert done.exit_code == code, done.output
    assert words in " ".join(done.output.split())


def test_export_writes_a_graph_that_predicts(birds):
    import onnxruntime

    done = run("export", birds / "m", "--onnx", birds / "m.onnx")
    assert done.exit_code == 0 and "prepared features" in done.output
    clf = cavity.load(birds / "m")
    X = np.random.default_rng(0).standard_normal((7, len(clf.preparation_.names)))
    session = onnxruntime.InferenceSession(birds / "m.onnx")
    np.testing.assert_allclose(
        session.run(["probabilities"], {"X": X})[0], clf.predict_proba(Prepared(X)), atol=1e-5
    )


@pytest.fixture(scope="module")
def client(birds):
    return TestClient(serving.make_app(Model.open(birds / "m"), serving.Limits(5, 2000)))


def row(client, **changed):
    columns = client.get("/schema").json()["columns"]
    return {name: None for name in columns} | changed


def test_served_predictions_are_the_commands(birds, client):
    assert client.get("/health").json()["status"] == "ok"
    import pyarrow.csv

    rows = pyarrow.csv.read_csv(birds / "penguins.csv").slice(0, 4).to_pylist()
    names = client.get("/schema").json()["columns"]
    sent = [{name: r[name] for name in names} for r in rows]
    got = client.post("/predict?uncertainty=true", json={"rows": sent})
    assert got.status_code == 200, got.text
    model = Model.open(birds / "m")
    P = model.classifier.predict_proba(pa.table({n: [r[n] for r in sent] for n in names}))
    np.testing.assert_array_equal(got.json()["probabilities"], P)
    assert got.json()["labels"] == list(model.classifier.classes_[P.argmax(1)])
    assert len(got.json()["epistemic"]) == 4
    assert "/predict" in client.get("/openapi.json").json()["paths"]


@pytest.mark.parametrize(
    "body, code, words",
    [
        (b"{", 422, "not valid JSON"),
        (b"[" * 1500, 422, "not valid JSON"),
        (b"[]", 422, "no rows"),
        (b'{"rows": []}', 422, "no rows"),
        (b'{"rows": [1]}', 422, "an object by column name"),
        (b'{"rows": [{"wings": 2}]}', 422, "no column"),
        (b'{"rows": [1, 2, 3, 4, 5, 6]}', 422, "limit is 5"),
        (b'{"rows": "' + b"x" * 3000 + b'"}', 413, "2000 bytes"),
    ],
)
def test_bad_requests_get_words(client, body, code, words):
    got = client.post("/predict", content=body)
    assert got.status_code == code, got.text
    assert words in got.json()["detail"]


def test_a_cell_must_be_a_cell(client):
    got = client.post(
        "/predict", json={"rows": [row(client) | {client.get("/schema").json()["columns"][0]: {"a": 1}}]}
    )
    assert got.status_code == 422 and "dict" in got.json()["detail"]


def test_without_names_rows_are_lists(toy_model):
    client = TestClient(serving.make_app(Model.open(toy_model)))
    X, _ = toy(3, 3, seed=1)
    got = client.post("/predict", json={"rows": X.tolist()})
    np.testing.assert_array_equal(got.json()["probabilities"], cavity.load(toy_model).predict_proba(X))
    for bad in ([[1.0]], [["a"] * X.shape[1]], [{"a": 1}], [[None] * X.shape[1]]):
        assert client.post("/predict", json={"rows": bad}).status_code == 422
    assert (
        client.post("/predict", content=json.dumps({"rows": [[float("nan")] * X.shape[1]]})).status_code
        == 422
    )


def test_a_cell_whose_square_overflows_has_a_prediction(toy_model, tmp_path):
    X, _ = toy(3, 3, seed=1)
    X[1, 0] = 1e155
    got = TestClient(serving.make_app(Model.open(toy_model))).post(
        "/predict?uncertainty=true", json={"rows": X.tolist()}
    )
    assert got.status_code == 200, got.text
    assert np.isfinite(got.json()["probabilities"]).all() and np.isfinite(got.json()["epistemic"]).all()
    rows = [",".join(f"c{i}" for i in range(X.shape[1])), *(",".join(map(repr, r)) for r in X.tolist())]
    (tmp_path / "rows.csv").write_text("\n".join(rows))
    done = run("predict", toy_model, tmp_path / "rows.csv", "--out", tmp_path / "p.csv", "--uncertainty")
    assert done.exit_code == 0, done.output
    assert "nan" not in (tmp_path / "p.csv").read_text()
