"""A method, a command, a kind of file and a member of the pool are each added in one
place.
"""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import typer
from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier

import cavity
from cavity import BadInput, GPClassifier
from cavity.cli.app import _command, app
from cavity.fitting.options.library import method_names
from cavity.methods import EP, METHODS
from cavity.tables.arrow_tables import Chunk
from cavity.tables.files.table_files import FILE_KINDS, TableFile
from cli.running import run
from registered import assert_same_elsewhere
from support import toy


@pytest.fixture
def table(tmp_path):
    X, y = toy(60, 2, seed=3)
    rows = {
        "a": X[:, 0].tolist(),
        "b": X[:, 1].tolist(),
        "kind": np.array(["no", "yes"])[y].tolist(),
    }
    (tmp_path / "rows.columns").write_text(json.dumps(rows))
    (tmp_path / "rows.csv").write_text(
        "a,b,kind\n"
        + "".join(f"{a!r},{b!r},{c}\n" for a, b, c in zip(*rows.values(), strict=True))
    )
    return tmp_path


QUICK = (
    "--target",
    "kind",
    "--n-inducing",
    "5",
    "--max-epochs",
    "3",
    "--device",
    "cpu",
)


def test_a_method_is_one_registered_class(table, monkeypatch):
    """Its name then works in Python, in searches, in files and in the command line, and
    the error of a wrong name lists it.
    """
    monkeypatch.setattr(METHODS, "_classes", dict(METHODS._classes))

    @METHODS.register
    class HalfEP(EP):
        name = "half-ep"

        def __init__(self, likelihood=None, share=0.5):
            super().__init__(likelihood)
            self.share = share

        @property
        def removal(self):
            return self.share

    X, y = toy(60, 2, seed=3)
    clf = GPClassifier("half-ep", n_inducing=5, max_epochs=3, random_state=0).fit(X, y)
    assert_same_elsewhere(clf, X, table)
    search = GridSearchCV(
        clone(clf).set_params(method=HalfEP()), {"method__share": [0.1, 0.2]}, cv=2
    )
    assert search.fit(X, y).best_params_["method__share"] in (0.1, 0.2)
    done = run(
        "fit",
        table / "rows.csv",
        *QUICK,
        "--method",
        "half-ep",
        "--out",
        table / "c.cavity",
    )
    assert done.exit_code == 0 and "half-ep" in run("info", table / "c.cavity").output
    with pytest.raises(cavity.BadOption, match="half-ep"):
        GPClassifier("third-ep").fit(X, y)


def test_the_help_names_every_method():
    """The help is text, so that it appears without torch."""
    shown = " ".join(run("fit", "--help").output.split())
    assert all(name in shown for name in method_names("classification"))


def test_a_command_is_one_function(monkeypatch, tmp_path):
    """Its help, its place in the list, and errors as messages with exit codes come with
    the decorator.
    """
    monkeypatch.setattr(app, "registered_commands", [*app.registered_commands])
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").touch()

    @_command("Count rows.", "count rows.csv", shared=())
    def count(data: str, most: int = 3) -> None:
        """Count rows."""
        if most < 3:
            raise BadInput("there are more rows.")
        typer.echo(f"{data}: {most}")

    assert "Count rows." in run("--help").output
    assert "Example: cavity count rows.csv" in run("count", "--help").output
    assert run("count", "rows.csv").output == "rows.csv: 3\n"
    failed = run("count", "rows.csv", "--most", "2")
    assert failed.exit_code == 1 and failed.stderr == "error: there are more rows.\n"
    assert (
        run("count", "none.csv").stderr
        == "error: file or folder 'none.csv' does not exist.\n"
    )
    assert run("count", "rows.csv", "--most", "x").exit_code == 2


class Columns(TableFile):
    """JSON object of lists."""

    def __init__(self, path):
        self.path, self.rows = path, json.loads(Path(path).read_text())
        self.names = list(self.rows)

    def chunks(self, columns=None):
        yield Chunk(
            pa.table({n: self.rows[n] for n in columns or self.names}),
            0,
            str(self.path),
        )


def test_a_kind_of_file_is_one_class_and_one_entry(table, monkeypatch):
    """Every command then reads it, and knows that it is not a model."""
    monkeypatch.setitem(FILE_KINDS, ".columns", Columns)
    for kind in ("columns", "csv"):
        done = run(
            "fit", table / f"rows.{kind}", *QUICK, "--out", table / f"{kind}.cavity"
        )
        assert done.exit_code == 0, done.output
        done = run(
            "predict",
            table / f"{kind}.cavity",
            table / f"rows.{kind}",
            "--out",
            table / f"{kind}.out.csv",
        )
        assert done.exit_code == 0, done.output
    assert (table / "columns.out.csv").read_text() == (
        table / "csv.out.csv"
    ).read_text()
    assert run("evaluate", table / "csv.cavity", table / "rows.columns").exit_code == 0
    swapped = run("predict", table / "rows.columns", table / "csv.cavity")
    assert "is a table, not a model: did you swap the arguments?" in " ".join(
        swapped.stderr.split()
    )
    (table / "rows.docx").touch()
    assert ".columns" in run("fit", table / "rows.docx", *QUICK).stderr


class Committee(BaggingClassifier):
    """A classifier of the user's own, made of trees."""


@pytest.mark.parametrize(
    "member",
    [
        DecisionTreeClassifier(max_depth=2, random_state=0),
        RandomForestClassifier(5, random_state=0),
        Committee(DecisionTreeClassifier(max_depth=2), n_estimators=3, random_state=0),
    ],
    ids=lambda member: type(member).__name__,
)
def test_a_member_of_the_pool_is_one_classifier(member, tmp_path):
    """It is stored as arrays of trees (pool/sklearn_trees.py); nothing else knows which
    classifier it was.
    """
    X, y = toy(90, 3, seed=1)
    y = np.where(X[:, 0] * X[:, 1] > 0, y, 0)
    clf = GPClassifier(
        n_inducing=2, max_epochs=1, ensemble=[member], random_state=0
    ).fit(X, y)
    assert len(clf.ensemble_weights_) == 2 and clf.ensemble_weights_[1] > 0.01
    assert_same_elsewhere(clf, X, tmp_path, atol=1e-6)
