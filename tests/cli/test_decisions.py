"""Decisions by costs: `cavity decide`, `evaluate --costs`, the report, the server."""

import csv
import json
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pyarrow.csv
import pytest
from sklearn.metrics import make_scorer
from sklearn.model_selection import TunedThresholdClassifierCV
from starlette.testclient import TestClient

import cavity
from cavity import BadOption, Costs
from cavity.cli.models import Model
from cavity.cli.serving.application import make_app
from cavity.cli.serving.trial import read_page_file
from cli import loans
from cli.running import SINGLE, run

pytestmark = pytest.mark.usefixtures("few_trees")

PAIR = Costs(positive="default", false_positive=1, false_negative=10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("loans")
    loans.write(path)
    model = ("--target", "state", "--out", path / "m")
    done = run("fit", path / "loans.csv", *model, *SINGLE)
    assert done.exit_code == 0, done.output
    return path


def read(path):
    table = pyarrow.csv.read_csv(path)
    return table.drop_columns("state"), np.array(table["state"].to_pylist())


def test_the_command_writes_the_decisions_of_python(folder, tmp_path):
    X, _ = read(folder / "new.csv")
    clf = cavity.load(folder / "m")
    (tmp_path / "c.toml").write_text(loans.COSTS + "refuse = 0.5\n")
    given = (folder / "m", folder / "new.csv", "--costs", tmp_path / "c.toml")
    done = run("decide", *given, "--out", tmp_path / "d.csv", "--keep", "debt")
    assert done.exit_code == 0, done.output
    found = list(csv.DictReader((tmp_path / "d.csv").open()))
    costs = Costs(positive="default", false_positive=1, false_negative=10, refuse=0.5)
    expected = clf.decide(X, costs)
    action = ["refuse" if a is None else a for a in expected.action]
    assert [row["action"] for row in found] == action
    assert {*action} == {"refuse", "default", "paid"}
    for name in ("cost", "margin"):
        written = [float(row[name]) for row in found]
        np.testing.assert_allclose(written, getattr(expected, name), rtol=1e-12)
    assert f"expected cost {expected.cost.mean():.4g} per row" in done.output


def test_evaluate_compares_the_cost_of_decisions_with_other_rules(folder):
    X, y = read(folder / "new.csv")
    clf = cavity.load(folder / "m")
    given = (folder / "m", folder / "new.csv", "--costs", folder / "costs.toml")
    done = run("evaluate", *given, "--json", "--quiet")
    found = json.loads(done.stdout)["decisions"]
    rules = {
        "decide": clf.decide(X, PAIR).action,
        "predict": clf.predict(X),
        "always paid": np.full(len(y), "paid"),
        "always default": np.full(len(y), "default"),
    }
    matrix = PAIR.matrix(clf.classes_)
    for rule, value in found["values"].items():
        action = np.searchsorted(clf.classes_, rules[rule])
        each = matrix[np.searchsorted(clf.classes_, y), action]
        assert value == pytest.approx(each.mean())
        low, high = found["ranges"][rule]
        error = each.std() / len(y) ** 0.5
        assert low < value < high
        assert high - low == pytest.approx(2 * 1.96 * error, rel=0.25)
    assert found["values"]["decide"] < 0.8 * found["values"]["predict"]
    assert found["more"]["predict"][0] > 0
    assert found["thresholds"]["label"] == "default"
    assert found["thresholds"]["high"] == pytest.approx(1 / 11)
    shown = run("evaluate", *given).stdout
    assert "more than decide" in shown and "0.09091" in shown


def test_a_tuned_threshold_is_that_of_the_costs(folder):
    """Tuned on many labelled rows, it costs what the rule costs, up to noise."""
    clf = cavity.load(folder / "m")
    drawn = loans.draw(20_000, 7)
    y = drawn.pop("state")
    X = pyarrow.table(drawn).to_pandas()
    matrix = PAIR.matrix(clf.classes_)

    def gain(y, action):
        places = np.searchsorted(clf.classes_, [y, action])
        return -matrix[places[0], places[1]].mean()

    half = np.arange(len(y)) < 10_000
    options = {"scoring": make_scorer(gain), "cv": "prefit", "refit": False}
    tuned = TunedThresholdClassifierCV(clf, thresholds=300, **options)
    tuned.fit(X[half], y[half])
    ours = -gain(y[~half], clf.decide(X[~half], PAIR).action)
    theirs = -gain(y[~half], tuned.predict(X[~half]))
    threshold = PAIR.threshold(clf.classes_).high
    default = 1 - tuned.best_threshold_  # it is about the second class
    assert default == pytest.approx(threshold, abs=0.03)
    assert ours == pytest.approx(theirs, abs=0.02)


@pytest.mark.parametrize(
    "text, word",
    [
        ("positive = ", "not TOML"),
        ("false_negativ = 10", "false_negativ"),
        ('positive = "bad"\nfalse_positive = 1\nfalse_negative = 2', "'bad'"),
        ("errors = 3", "errors"),
        ("refuse = 1", "errors"),
    ],
)
def test_files_of_costs_that_make_no_sense_are_refused(folder, tmp_path, text, word):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    for command in ("decide", "evaluate"):
        done = run(command, folder / "m", folder / "new.csv", "--costs", path)
        assert done.exit_code == 2
        assert word in done.stderr and "bad.toml" in done.stderr


def test_decide_takes_costs(folder):
    X, _ = read(folder / "new.csv")
    with pytest.raises(BadOption, match=r"Costs"):
        cavity.load(folder / "m").decide(X, {"paid": {"default": 1}})


@pytest.mark.parametrize("refuse", [None, 0.5])
def test_the_server_answers_with_decisions(folder, refuse):
    costs = replace(PAIR, refuse=refuse)
    client = TestClient(
        make_app(Model.open(folder / "m"), costs=costs), base_url="http://localhost"
    )
    X, _ = read(folder / "new.csv")
    expected = cavity.load(folder / "m").decide(X, costs)
    got = client.post("/predict", json={"rows": X.slice(0, 50).to_pylist()}).json()
    assert got["decisions"] == expected.action[:50].tolist()
    np.testing.assert_array_equal(got["expected_costs"], expected.cost[:50])
    np.testing.assert_array_equal(got["margins"], expected.margin[:50])
    about = client.get("/schema").json()["decisions"]
    assert about["threshold"]["label"] == "default"
    assert about["costs"] == costs.matrix(["default", "paid"]).tolist()
    assert about["actions"] == ["default", "paid", None][: 2 + costs.refuses]


def test_without_costs_the_server_answers_as_before(folder):
    client = TestClient(make_app(Model.open(folder / "m")), base_url="http://localhost")
    X, _ = read(folder / "new.csv")
    got = client.post("/predict", json={"rows": X.slice(0, 2).to_pylist()}).json()
    assert "decisions" not in got
    assert client.get("/schema").json()["decisions"] is None


def test_the_report_draws_costs_and_gain(folder, tmp_path):
    given = (folder / "m", folder / "new.csv", "--out", tmp_path / "r.html")
    done = run("report", *given, "--costs", folder / "costs.toml")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "r.html").read_text()
    X, y = read(folder / "new.csv")
    clf = cavity.load(folder / "m")
    p = clf.predict_proba(X)[:, 0]
    bad = y == "default"
    half = np.where(p > 0.5, ~bad, 10 * bad).mean()
    own = np.where(p > 1 / 11, ~bad, 10 * bad).mean()
    assert f"{own:.3f} at 0.091" in page and f"{half:.3f} at 0.5" in page
    first = np.argsort(-p, kind="stable")[: len(y) // 5]
    assert f"holds {bad[first].sum() / bad.sum():.2f} of" in page
    assert "always default" in page and "The decision is default if" in page
    lead = page[page.index('class="lead"') : page.index('id="decisions"')]
    assert f"deciding costs {own:.3g} per row" in lead
    assert run("report", *given).exit_code == 0
    page = (tmp_path / "r.html").read_text()
    assert "always default" not in page and "A fifth of the rows" in page


PAGE = """
const found = {}, fake = () => ({ dataset: {}, hidden: false });
const $ = (id) => (found[id] ??= fake());
const percent = (p) => `${(100 * p).toFixed(1)}%`, short = String;
const threshold = { label: "default", low: 0.05, high: 0.5 };
const model = { classes: ["default", "paid"], decisions: { threshold } };
const one = { probabilities: [[0.2, 0.8]], decisions: [null], expected_costs: [0.5], margins: [0.3] };
$("cut").value = 0.5;
showDecision(one);
const told = [[$("decision").textContent, $("at").textContent]];
for (const cut of [0.1, 0.25]) {
  $("cut").value = cut;
  $("cut").oninput();
  told.push([$("decision").textContent, $("at").textContent]);
}
console.log(JSON.stringify(told));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_slider_of_the_page_moves_the_decision():
    script = read_page_file("page.js").decode()
    start = script.index("function showDecision")
    function = script[start : script.index("function showNumber")]
    command = ["node", "-e", function + PAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    own, low, high = json.loads(done.stdout)
    assert "refuse" in own[0] and "5.0%" in own[1] and "50.0%" in own[1]
    assert "decide default" in low[0] and "9 times" in low[0] and "10.0%" in low[1]
    assert "decide paid" in high[0] and "3 times" in high[0] and "25.0%" in high[1]
