"""`cavity drift` and `compare_rows`: alarms, exit codes, files, models that cannot."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import cavity
from cavity import BadFile, BadInput, GPClassifier, GPRegressor
from cavity.common import tensor_files
from cli import loans
from cli.running import SINGLE, run
from support import toy, without_warnings

pytestmark = pytest.mark.usefixtures("few_trees")

OLD = Path(__file__).parents[1] / "saved" / "models" / "format-4.cavity"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("drift")
    loans.write(path)
    model = ("--target", "state", "--out", path / "m")
    done = run("fit", path / "loans.csv", *model, *SINGLE)
    assert done.exit_code == 0, done.output
    table = pyarrow.csv.read_csv(path / "new.csv")
    home = pa.array(["rent"] * 600)
    other = table.set_column(table.column_names.index("home"), "home", home)
    pyarrow.csv.write_csv(other, path / "rent.csv")
    return path


def test_rows_that_have_not_changed_are_quiet(folder):
    done = run("drift", folder / "m", folder / "new.csv")
    assert done.exit_code == 0, done.output
    assert "No column has changed" in done.stdout
    assert run("drift", folder / "m", folder / "loans.csv").exit_code == 0


def test_a_category_that_changes_alarms(folder):
    """Novelty alone hardly sees it."""
    done = run("drift", folder / "m", folder / "rent.csv", "--json", "--quiet")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["changed"] == ["home"] and found["rows"] == 600
    columns = found["columns"]
    assert columns["column"][0] == "home"
    trained = pyarrow.csv.read_csv(folder / "loans.csv")["home"].to_pylist()
    rented = np.mean(np.array(trained) == "rent")
    assert columns["distance"][0] == pytest.approx(1 - rented)
    assert columns["largest"][0] == f"rent: {rented:.1%} → 100.0%"
    shown = run("drift", folder / "m", folder / "rent.csv", "--level", "1e-6")
    assert shown.exit_code == 1 and "Changed: home (level 1e-06" in shown.stdout
    done = run("drift", folder / "m", folder / "rent.csv", "--level", "2")
    assert done.exit_code == 2


def test_python_and_a_loaded_model_say_the_same_as_the_command(folder):
    clf = cavity.load(folder / "m")
    rows = pyarrow.csv.read_csv(folder / "rent.csv").drop_columns("state")
    found = clf.compare_rows(rows)
    done = run("drift", folder / "m", folder / "rent.csv", "--json", "--quiet")
    told = json.loads(done.stdout)
    for name, values in told["columns"].items():
        expected = found.columns()[name]
        assert values == pytest.approx(expected) if name != "column" else values
    assert told["unusual"] == pytest.approx(found.unusual)
    assert "changed: home" in str(found)


@pytest.mark.parametrize("model", [GPClassifier(effort="fast"), GPRegressor()])
def test_arrays_are_compared_too(model, tmp_path):
    X, y = toy(200, 2, D=3)
    model.set_params(n_inducing=5, max_epochs=3, random_state=0)
    with without_warnings():
        model.fit(X[:100], y[:100])
    assert not model.compare_rows(X[100:]).changed(0.01)
    moved = X[100:].copy()
    moved[:, 2] += 3 * X[:, 2].std()
    found = model.compare_rows(moved)
    assert found.changed()[0] == "column 2"
    assert 0 <= found.unusual <= 1
    model.save(tmp_path / "m")
    again = cavity.load(tmp_path / "m").compare_rows(moved)
    assert str(again) == str(found)
    lacking = X[100:].copy()
    lacking[::5, 1] = np.nan
    assert "column 1" in model.compare_rows(lacking).changed()


def test_class_weights_are_no_drift():
    X, y = toy(300, 2, D=2)
    X[:, 0] += 4 * y
    weighted = GPClassifier(
        effort="fast",
        n_inducing=5,
        max_epochs=3,
        random_state=0,
        class_weight={0: 20, 1: 1},
    )
    with without_warnings():
        weighted.fit(X, y)
    assert not weighted.compare_rows(X).changed()


def test_models_without_shares_say_so(toy_model):
    X, y = toy(60, 3, seed=0)
    grown = GPClassifier("sep", n_inducing=5).partial_fit(X, y)
    for model in (cavity.load(OLD), grown):
        with pytest.raises(BadInput, match="fit"):
            model.compare_rows(X)


def test_damaged_shares_are_refused(folder, tmp_path):
    stored = tensor_files.read_arrays(folder / "m", "model")
    damages = (
        lambda shares: shares.pop(),
        lambda shares: shares[0].update(rows=-1),
        lambda shares: shares[0].update(edges=[2, 1]),
        lambda shares: shares[0]["shares"].append(0.1),
        lambda shares: shares[0].pop("missing"),
        lambda shares: shares[0].update(name="other"),
    )
    for damage in damages:
        meta = json.loads(json.dumps(stored.meta))
        damage(meta["shares"])
        tensor_files.write(tmp_path / "bad", "model", stored.tensors, meta)
        with pytest.raises(BadFile, match="shares"):
            cavity.load(tmp_path / "bad")


def test_rows_that_cannot_be_compared_are_refused(folder):
    clf = cavity.load(folder / "m")
    rows = pyarrow.csv.read_csv(folder / "new.csv")
    with pytest.raises(BadInput, match="home"):
        clf.compare_rows(rows.drop_columns("home"))
    with pytest.raises(BadInput, match="no rows"):
        clf.compare_rows(rows.slice(0, 0))
