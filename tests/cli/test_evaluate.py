"""`cavity evaluate` and the end of `cavity fit`: weights, rare classes, baselines, long
tables.
"""

import csv
import json
import re

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import log_loss

import cavity
from cavity.cli.evaluating import predict_rows
from cavity.cli.model_rows import find_roles
from cavity.cli.models import Model
from cavity.cli.terminal import Terminal
from cavity.tables.files.table_files import open_table
from cli.running import run

pytestmark = pytest.mark.usefixtures("few_trees")

QUICK = (
    "--n-inducing",
    "6",
    "--max-epochs",
    "8",
    "--device",
    "cpu",
    "--effort",
    "fast",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder with an imbalanced table, in which one class is rare and looks like
    another, and a model.
    """
    path = tmp_path_factory.mktemp("rare")
    rng = np.random.default_rng(0)
    for name in ("train.csv", "test.csv"):
        with (path / name).open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["x", "w", "kind"])
            for i in range(80):
                kind = "rare" if i in (3, 50) else "ab"[i % 2]
                x = (kind == "a") * 3 + rng.normal()
                weight = rng.integers(0, 4)
                out.writerow([x, 1 if kind == "rare" else weight, kind])
    (path / "fit.toml").write_text('weight = "w"\n')
    done = run(
        "fit", path / "train.csv", "--target", "kind", "--out", path / "m", *QUICK, "--config", path / "fit.toml"
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    (path / "fit.txt").write_text(done.output)
    return path


def test_a_fit_ends_with_an_estimate_baselines_and_warnings(folder):
    shown = (folder / "fit.txt").read_text()
    assert "Estimated on " in shown and "From rows that the models did not see" in shown
    assert "class frequencies" in shown and "logistic regression" in shown
    assert (
        "classes with fewer than 10 rows, which a model can hardly learn: 'rare' (2)"
        in shown
    )
    assert "never predicted for rows of the training table: 'rare'" in shown
    clf = cavity.load(folder / "m")
    found = clf.estimate_
    assert f"log loss {found.log_loss:.3f}" in shown
    assert found.log_loss < found.baseline_log_loss


def test_every_evaluation_compares_with_logistic_regression_or_says_why_not(
    folder, tmp_path
):
    clf = cavity.load(folder / "m")
    rows = folder / "test.csv"
    shown = run("evaluate", folder / "m", rows)
    loss = clf.notes_["logistic_log_loss"]
    said = f"logistic regression had a log loss of {loss:.3f}"
    assert f"{said}, the model {clf.estimate_.log_loss:.3f}." in shown.output
    told = json.loads(run("evaluate", folder / "m", rows, "--json").stdout)
    assert told["logistic_log_loss"] == loss

    reasons = {
        "fitted in Python": {},
        "did not fit in memory": {"rows": 80},
        "no time was left": {"rows": 80, "logistic_log_loss": None},
        "interrupted": {"rows": 80, "logistic_log_loss": None, "interrupted": True},
    }
    for reason, notes in reasons.items():
        clf.notes_ = {"weight": "w"} | notes
        clf.save(tmp_path / "m")
        shown = run("evaluate", tmp_path / "m", rows, "--target", "kind")
        assert "Logistic regression was not compared: " in shown.output
        assert reason in shown.output


def test_a_useless_fit_warns_although_it_is_quiet(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{x:.3f},{i % 2}" for i, x in enumerate(rng.normal(size=40))]
    (tmp_path / "t.csv").write_text("\n".join(["x,y", *rows]))
    files = (tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "m")
    done = run("fit", *files, *QUICK, "--quiet")
    estimate = cavity.load(tmp_path / "m").estimate_
    assert estimate.log_loss >= estimate.baseline_log_loss
    assert not done.stdout
    assert f"{estimate.baseline_log_loss:.3f}" in done.stderr


def test_info_says_that_a_file_has_no_estimate(tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 2))
    reg = cavity.GPRegressor("svi", n_inducing=5, max_epochs=1)
    reg.fit(pa.table({"a": X[:, 0], "y": X[:, 1]}), target="y").save(tmp_path / "m")
    told = json.loads(run("info", tmp_path / "m", "--json").output)
    assert told["has_estimate"] is False
    assert re.search(r"^estimate +none", run("info", tmp_path / "m").output, re.M)


def test_a_column_of_groups_is_no_feature_and_its_rows_stay_together(tmp_path):
    rng = np.random.default_rng(0)
    group = np.arange(30).repeat(6)
    kind, x = (
        group % 2,
        group + 1e-3 * rng.normal(size=180),
    )  # a shop says nothing about the next
    rows = [f"{a},shop {g},{'ab'[k]}\n" for a, g, k in zip(x, group, kind, strict=True)]
    (tmp_path / "t.csv").write_text("x,shop,kind\n" + "".join(rows))
    fit = (
        "fit",
        tmp_path / "t.csv",
        "--target",
        "kind",
        "--out",
        tmp_path / "m",
        *QUICK,
    )
    done = run(*fit, "--group", "shop", "--json")
    found = json.loads(done.stdout)
    assert (
        "groups kept together" in found["plan"]
        and "groups kept together" in found["estimate"]["how"]
    )
    clf = cavity.load(tmp_path / "m")
    assert list(clf.preparation_.inputs) == ["x"] and clf.notes_["group"] == "shop"
    assert found["estimate"]["log_loss"] > 0.6
    (tmp_path / "alone.csv").write_text(
        "x,kind\n" + "".join(re.sub("shop [0-9]+,", "", row) for row in rows)
    )
    grouped, alone = (
        json.loads(run("evaluate", tmp_path / "m", tmp_path / name, "--json").stdout)
        for name in ("t.csv", "alone.csv")
    )
    assert grouped["nll"] == alone["nll"]  # rows of a shop are not independent
    for name in ("nll", "error"):
        assert np.ptp(grouped["intervals"][name]) == pytest.approx(
            6**0.5 * np.ptp(alone["intervals"][name]), rel=0.25
        )
    assert (
        "30 groups of rows (column 'shop')"
        in run("evaluate", tmp_path / "m", tmp_path / "t.csv").output
    )
    (tmp_path / "t.csv").write_text("x,shop,kind\n1,,a\n" + "".join(rows))
    assert "missing in 1 rows" in run(*fit, "--group", "shop").output


def test_a_row_of_weight_w_is_scored_as_w_rows(folder):
    """The weights of the training column are used unless another one is named."""
    found = json.loads(
        run("evaluate", folder / "m", folder / "test.csv", "--json", "--quiet").output
    )
    with (folder / "test.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    clf = cavity.load(folder / "m")
    P = clf.predict_proba(pa.table({"x": [float(r["x"]) for r in rows]}))
    w = np.array([float(r["w"]) for r in rows])
    y = np.array([r["kind"] for r in rows])
    assert found["rows"] == (w > 0).sum()
    assert found["nll"] == pytest.approx(
        log_loss(y, P, sample_weight=w, labels=clf.classes_)
    )
    prior = np.broadcast_to(clf.class_prior_, P.shape)
    assert found["baseline"]["nll"] == pytest.approx(
        log_loss(y, prior, sample_weight=w, labels=clf.classes_)
    )
    assert (
        "no column 'v' for the weights"
        in run("evaluate", folder / "m", folder / "test.csv", "--weight", "v").output
    )
    (folder / "bad.csv").write_text("x,w,kind\n1,-1,a\n")
    assert (
        "is negative or not finite in row 1"
        in run("evaluate", folder / "m", folder / "bad.csv").output
    )


def test_a_class_that_is_never_predicted_does_not_go_unnoticed(folder):
    done = run("evaluate", folder / "m", folder / "test.csv")
    assert "note: classes that are never predicted: 'rare'" in done.output
    assert (
        "classes with fewer than 10 rows, whose scores say little: 'rare' ("
        in done.output
    )
    found = json.loads(
        run("evaluate", folder / "m", folder / "test.csv", "--json", "--quiet").output
    )
    assert (
        found["per_class"]["rare"]["precision"] is None
        and found["per_class"]["rare"]["recall"] == 0
    )


def test_of_a_long_table_a_sample_is_scored_and_the_command_says_so(folder, capsys):
    model = Model.open(folder / "m")
    file = open_table(folder / "test.csv")
    roles = find_roles(model, file, target=None, weight=None, group=None)
    found = predict_rows(model, file, roles, Terminal(), most_numbers=3 * 30)
    said = capsys.readouterr().err
    assert f"a random sample of 30 of {found.total} rows" in said
    assert {len(column) for column in found.columns} == {30} and found.total > 30


def test_scores_of_training_rows_and_of_weighted_rows_come_with_a_note(
    folder, tmp_path
):
    assert "trained on" not in run("evaluate", folder / "m", folder / "test.csv").stderr
    done = run("evaluate", folder / "m", folder / "train.csv")
    assert "these are the rows that the model was trained on" in done.stderr
    done = run(
        "report", folder / "m", folder / "test.csv", "--out", tmp_path / "r.html"
    )
    assert "does not use the weights in column 'w'" in done.stderr
    said = "The weights in column &#39;w&#39; are not used"
    assert said in (tmp_path / "r.html").read_text()


def test_names_of_classes_stay_unique_when_they_are_cut(tmp_path):
    """Two classes with the same beginning are never printed under one name."""
    kinds = ("subtropical depression", "subtropical storm", "hurricane", "wave")
    rows = [f"{i % 4 + i / 200},{kinds[i % 4]}\n" for i in range(80)]
    (tmp_path / "storms.csv").write_text("x,status\n" + "".join(rows))
    fit = (
        "fit",
        tmp_path / "storms.csv",
        "--target",
        "status",
        "--out",
        tmp_path / "m",
    )
    assert run(*fit, *QUICK).exit_code == 0
    shown = run("evaluate", tmp_path / "m", tmp_path / "storms.csv").stdout
    scores, confusion = shown.split("\n\n")[1:]
    for table in (scores, confusion):
        names = [re.split(r"  +", line)[0] for line in table.splitlines()[1:]]
        assert len({*names}) == 4 and {"hurricane", "wave"} < {*names}
        assert "subtropical s…" in names and "subtropical d…" in names
    assert "subtropical s…" in confusion.splitlines()[0]
