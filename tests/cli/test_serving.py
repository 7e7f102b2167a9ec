"""cavity report, export, serve and the columns of uncertainty: through the commands, good input and bad."""

import json
import re

import numpy as np
import pandas as pd

import cavity
from cli.running import TRAIN, run


def test_predict_adds_what_it_does_not_know(birds):
    done = run(
        "predict", birds / "birds.cavity", birds / "penguins.csv", "--out", birds / "p.csv", "--uncertainty"
    )
    assert done.exit_code == 0, done.output
    found = np.genfromtxt(birds / "p.csv", delimiter=",", names=True, dtype=None, encoding=None)
    total, parts = found["total"], found["aleatoric"] + found["epistemic"]
    np.testing.assert_allclose(total, parts, atol=0.02)
    assert (found["epistemic"] >= 0).all()


def test_report_of_a_model_and_of_rows(birds):
    alone = run("report", birds / "birds.cavity", "--out", birds / "alone.html")
    assert alone.exit_code == 0, alone.output
    assert "About the model" in (birds / "alone.html").read_text()
    done = run(
        "report",
        birds / "birds.cavity",
        birds / "penguins.csv",
        "--out",
        birds / "rows.html",
        "--rows",
        50,
        "--json",
    )
    assert done.exit_code == 0, done.output
    said = json.loads(re.search(r"^\{.*\}$", done.output, re.MULTILINE).group())
    assert said["shown"] == 50 < said["rows"]
    assert "Confusion matrix" in (birds / "rows.html").read_text()


def test_export_writes_a_graph_that_predicts(birds, tmp_path):
    import onnxruntime

    model, graph = tmp_path / "m", tmp_path / "m.onnx"
    quick = ("--n-inducing", "6", "--max-epochs", "5", "--seed", 5)  # both kinds of trees get a weight
    assert run("fit", birds / "penguins.csv", *TRAIN, *quick, "--out", model).exit_code == 0
    done = run("export", model, "--onnx", graph)
    assert (
        done.exit_code == 0 and "'island'" in done.output and "each (n, 1)" in " ".join(done.output.split())
    )
    clf, table = cavity.load(model), pd.read_csv(birds / "penguins.csv")
    session = onnxruntime.InferenceSession(graph)
    numbers = {i.name: "double" in i.type for i in session.get_inputs()}
    cells = {
        name: table[[name]].to_numpy(float)
        if number
        else table[[name]].fillna("").to_numpy(object).astype(str)
        for name, number in numbers.items()
    }
    found = session.run(["probabilities"], cells)[0]
    np.testing.assert_allclose(found, clf.predict_proba(table), atol=1e-6)
