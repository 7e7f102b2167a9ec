"""Regression in the command line: fit notices a quantity; predict, evaluate, report and
serve follow.
"""

import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes

import cavity
from cavity.common.scoring import NORMAL_95
from cavity.errors import BadInput
from cavity.tables.columns.preparation import Preparation
from cli.running import fit_in_pieces, run

QUICK = ("--max-epochs", "8", "--device", "cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder with the diabetes table, a text column added, and a model of half of its
    rows.
    """
    path = tmp_path_factory.mktemp("diabetes")
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    table = X[["age", "bmi", "bp", "s5"]].assign(
        sex=np.where(X["sex"] > 0, "m", "f"), progress=y.astype(int)
    )
    table.loc[5, "progress"] = np.nan  # not used
    table[:220].to_csv(path / "train.csv", index=False)
    table[220:].to_csv(path / "test.csv", index=False)
    done = run(
        "fit", path / "train.csv", "--target", "progress", "--out", path / "m", *QUICK
    )
    assert done.exit_code == 0, done.output
    (path / "fit.txt").write_text(done.output)
    return path


def test_fit_notices_a_quantity_and_says_how_good_it_is(folder):
    shown = (folder / "fit.txt").read_text()
    assert "the target has many values, so this is a regression" in shown
    assert (
        "1 rows without a label are not used" in shown
        and "regression, method exact" in shown
    )
    assert "Estimated on 219 rows (5 folds)" in shown and "mean of y" in shown
    assert "predict_interval" not in shown and "about" in shown
    gp = cavity.load(folder / "m")
    assert isinstance(gp, cavity.GPRegressor) and gp.preparation_.target_.number
    found = gp.estimate_
    assert found.rmse < 0.95 * found.baseline_rmse and 0.8 < found.coverage_95 <= 1


def test_predictions_and_scores_are_those_of_python(folder):
    gp = cavity.load(folder / "m")
    table = pd.read_csv(folder / "test.csv")
    run("predict", folder / "m", folder / "test.csv", "--out", folder / "p.csv")
    written = pd.read_csv(folder / "p.csv")
    mean, std = gp.predict(table, return_std=True)
    low, high = (mean + side * NORMAL_95 * std for side in (-1, 1))
    for name, expected in {"mean": mean, "std": std, "low": low, "high": high}.items():
        np.testing.assert_allclose(written[name], expected, rtol=1e-9)
    options = ["--interval", "0.8", "--out", folder / "p.csv"]
    run("predict", folder / "m", folder / "test.csv", *options)
    written = pd.read_csv(folder / "p.csv")
    expected = gp.predict_interval(table, 0.8)
    np.testing.assert_allclose(written[["low", "high"]].T, expected, rtol=1e-9)
    done = run("predict", folder / "m", folder / "test.csv", "--interval", "80")
    assert done.exit_code == 2 and "--interval" in done.output
    scores = json.loads(
        run("evaluate", folder / "m", folder / "test.csv", "--json", "--quiet").output
    )
    y = table["progress"].to_numpy()
    assert scores["rows"] == 222
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)))
    assert scores["r2"] == pytest.approx(gp.score(table, y))
    assert scores["coverage"] == pytest.approx(np.mean((low <= y) & (y <= high)))
    assert (
        0.9 < scores["coverage"] < 0.99 and scores["nlpd"] < scores["baseline"]["nlpd"]
    )
    done = run("predict", folder / "m", folder / "test.csv", "--uncertainty")
    assert done.exit_code == 2 and "classifiers only" in done.output
    shown = run("evaluate", folder / "m", folder / "test.csv").output
    assert (
        re.search(rf"root mean squared error +{scores['rmse']:.4g}", shown)
        and "95% interval" in shown
    )


def test_the_report_has_the_scores_and_the_server_the_intervals(folder):
    assert (
        run(
            "report", folder / "m", folder / "test.csv", "--out", folder / "r.html"
        ).exit_code
        == 0
    )
    page = (folder / "r.html").read_text()
    assert (
        "Root mean squared error" in page and "Rows within their 95% interval" in page
    )
    done = run("export", folder / "m", "--onnx", folder / "m.onnx")
    assert done.exit_code == 0 and "outputs mean and std" in " ".join(
        done.output.split()
    )
    testclient = pytest.importorskip("starlette.testclient")
    from pathlib import Path

    from cavity.cli.models import Model
    from cavity.cli.serving.application import make_app

    row = pd.read_csv(folder / "test.csv", nrows=1).drop(columns="progress")
    model = Model.open(Path(folder / "m"))
    with testclient.TestClient(make_app(model), base_url="http://localhost") as client:
        answer = client.post("/predict", json={"rows": row.to_dict("records")}).json()
        assert client.get("/schema").json()["classes"] is None
    mean, std = model.classifier.predict(row, return_std=True)
    low, high = (mean + side * NORMAL_95 * std for side in (-1, 1))
    assert answer["low"] == pytest.approx(low.tolist()) and answer[
        "high"
    ] == pytest.approx(high.tolist())
    assert "probabilities" not in answer


@pytest.mark.parametrize(
    ("values", "number"),
    [
        ([0.5, 1.5, 2.5, 3.0], True),
        (["0.5", "1.5", None, "3"], True),
        ([1.0, 2.0, 1.0, None], False),
        (list(range(100)), True),  # a whole number for nearly every row
        (list(range(100)) * 10, False),  # a hundred classes
        (["a", "b", "a"], False),
        ([f"{i},5" for i in range(8)], True),  # formatted numbers
        ([f"$ {i},250.75" for i in range(1, 9)], True),
        (["10 %", "20 %"] * 4, False),
        (["1,5", "2,5"] * 8, False),
    ],
)
def test_a_target_is_a_quantity_if_it_has_fractions_or_nearly_one_value_per_row(
    values, number
):
    table = pd.DataFrame({"x": np.arange(len(values)) % 7, "y": values})
    target = Preparation("y", kinds={"y": "auto"}).fit(table).target_
    assert target.number == number


def test_whoever_asks_for_regression_gets_it_or_a_message(folder, tmp_path):
    pd.DataFrame(
        {"x": np.arange(40.0), "y": np.arange(40) % 2, "z": ["a", "b"] * 20}
    ).to_csv(tmp_path / "t.csv")
    common = ("fit", tmp_path / "t.csv", "--out", tmp_path / "m", *QUICK)
    done = run(
        *common, "--target", "y", "--regression", "--method", "vi", "--n-inducing", "5"
    )
    assert done.exit_code == 0 and cavity.load(tmp_path / "m").method == "vi"
    assert (
        "'z' is numeric, but row 1 has 'a'"
        in run(*common, "--target", "z", "--regression").output
    )
    done = run(*common, "--target", "y", "--regression", "--effort", "fast")
    assert (
        done.exit_code == 2
        and "effort is not an argument of GPRegressor" in done.output
    )
    with pytest.raises(BadInput, match="classifier"):
        Preparation("y").fit({"x": [1, 2], "y": [0.5, 1.5]})


def test_a_table_that_is_read_in_pieces_gives_a_regressor(folder, tmp_path):
    fit_in_pieces(
        folder / "train.csv",
        target="progress",
        out=tmp_path / "m",
        regression=True,
        n_inducing=10,
        max_epochs=8,
        device="cpu",
    )
    gp = cavity.load(tmp_path / "m")
    assert gp.method == "svi" and gp.score(*_rows(folder)) > 0.2


def test_a_target_of_formatted_numbers_is_a_quantity_for_every_command(tmp_path):
    x = np.arange(40) % 11
    plain = pd.DataFrame({"x": x, "y": 1000 + 1.25 * x + np.arange(40) % 2 / 4})
    written = plain.assign(
        y=[f"€ {v:,.2f}".translate(str.maketrans(",.", ".,")) for v in plain["y"]]
    )
    scores = []
    for name, table in (("plain", plain), ("written", written)):
        model = tmp_path / f"{name}.cavity"
        path = tmp_path / f"{name}.csv"
        table.to_csv(path, index=False, sep=";")
        done = run("fit", path, "--target", "y", "--out", model, *QUICK)
        assert done.exit_code == 0 and "so this is a regression" in done.output, (
            done.output
        )
        scores.append(
            json.loads(run("evaluate", model, path, "--json", "--quiet").output)
        )
    assert scores[0] == scores[1]
    refused = run("evaluate", model, tmp_path / "plain.csv").output
    assert (
        "but row 1 has '1000.0'" in refused
        and "its numbers are written as 1.250,5" in refused
    )
    assert (
        "'€ 1.000,00'"
        in run("fit", path, "--target", "y", "--regression", "--strict").output
    )


def test_the_advice_for_classes_of_numbers_works_for_every_name(tmp_path):
    pd.DataFrame({"x": np.arange(40) % 7, 'price "€"': np.arange(40)}).to_csv(
        tmp_path / "t.csv", index=False
    )
    common = (
        "fit",
        tmp_path / "t.csv",
        "--target",
        'price "€"',
        "--out",
        tmp_path / "m",
        *QUICK,
    )
    advice = re.search(r"classes, set (columns = .*) in the file", run(*common).output)
    (tmp_path / "c.toml").write_text(advice[1], encoding="utf-8")
    done = run(
        *common,
        "--config",
        tmp_path / "c.toml",
        "--effort",
        "fast",
        "--n-inducing",
        "3",
    )
    assert done.exit_code == 0 and "40 classes" in done.output, done.output


def _rows(folder):
    table = pd.read_csv(folder / "test.csv")
    return table, table["progress"]
