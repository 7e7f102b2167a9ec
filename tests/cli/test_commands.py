"""fit, predict, evaluate and info, as a process and in this process: good input, help,
several processes.
"""

import csv
import json
import time
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import log_loss

import cavity
from cavity.cli.app import app
from cavity.cli.fitting import Deadline
from cavity.common import tensor_files
from cavity.errors import CavityError
from cavity.tables.validation import Prepared
from cli.running import (
    QUICK,
    SINGLE,
    SINGLE_FLAGS,
    TRAIN,
    command,
    fit_in_pieces,
    run,
)
from support import slow


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# ---------------------------------------------------------------- good input
def test_fit_shows_what_becomes_of_the_columns_and_saves(birds):
    shown = (birds / "fit.txt").read_text()
    assert "penguins.csv: 240 rows, 6 columns, target 'species'" in shown
    assert "bill    number, mean 44" in shown and "some missing" in shown
    assert "island  category, 3 levels (Biscoe, Dream, Torgersen)" in shown
    assert "id      ignored (--ignore)" in shown
    assert "Saved birds.cavity" in shown
    assert (birds / "fit.err").read_text() == ""  # no progress bar without a terminal
    clf = cavity.load(birds / "birds.cavity")
    assert clf.classes_.tolist() == ["Adelie", "Chinstrap", "Gentoo"]
    assert clf.notes_["rows"] == 240 and clf.notes_["seed"] == 0


def test_predict_writes_labels_and_probabilities(birds):
    keep = "--keep id --keep species".split()
    done = command(
        "predict",
        birds / "birds.cavity",
        birds / "new.csv",
        "--out",
        birds / "p.csv",
        *keep,
    )
    assert (done.returncode, done.stderr) == (0, "") and "Wrote 60 rows" in done.stdout
    rows = read(birds / "p.csv")
    assert list(rows[0]) == [
        "id",
        "species",
        "label",
        "p_Adelie",
        "p_Chinstrap",
        "p_Gentoo",
    ]
    P = np.array(
        [[float(r[f"p_{c}"]) for c in ("Adelie", "Chinstrap", "Gentoo")] for r in rows]
    )
    np.testing.assert_allclose(P.sum(1), 1, rtol=1e-12)
    assert [r["id"] for r in rows] == [str(i) for i in range(60)]
    assert np.mean([r["label"] == r["species"] for r in rows]) > 0.8
    clf = cavity.load(birds / "birds.cavity")
    (chunk,) = cavity.tables.files.table_files.open_table(birds / "new.csv").chunks()
    np.testing.assert_allclose(P, clf.predict_proba(chunk.table), rtol=1e-9)
    run(
        "predict",
        birds / "birds.cavity",
        birds / "new.csv",
        "--out",
        birds / "p.parquet",
    )
    assert pq.read_table(birds / "p.parquet")["label"].to_pylist() == [
        r["label"] for r in rows
    ]
    assert not [p.name for p in birds.iterdir() if "part" in p.name]


def test_evaluate_gives_the_scores_of_the_predictions(birds):
    done = run("evaluate", birds / "birds.cavity", birds / "new.csv", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    scores = json.loads(done.stdout)
    clf = cavity.load(birds / "birds.cavity")
    (chunk,) = cavity.tables.files.table_files.open_table(birds / "new.csv").chunks()
    X = chunk.table
    y = clf.preparation_.labels(chunk)
    assert scores["rows"] == 60 and np.sum(scores["confusion"]) == 60
    np.testing.assert_allclose(scores["error"], 1 - clf.score(X, y))
    P = clf.predict_proba(X)
    place = np.searchsorted(clf.classes_, y)
    np.testing.assert_allclose(scores["nll"], log_loss(place, P), rtol=1e-9)
    np.testing.assert_allclose(
        scores["ece"], cavity.report.reliability(P, place).error, rtol=1e-9
    )
    shown = run("evaluate", birds / "birds.cavity", birds / "new.csv").output
    assert f"{scores['nll']:.4f}" in shown and "true / predicted" in shown
    prior = np.broadcast_to(clf.class_prior_, P.shape)
    np.testing.assert_allclose(
        scores["baseline"]["nll"], log_loss(place, prior), rtol=1e-9
    )
    assert scores["baseline"]["of"] == "training rows" and "class frequencies" in shown
    for name in ("error", "nll", "brier", "auc", "f1"):
        low, high = scores["intervals"][name]
        assert low <= scores[name] <= high
    gentoo = scores["per_class"]["Gentoo"]
    assert gentoo["rows"] == sum(scores["confusion"][2]) and 0.8 < gentoo["auc"] <= 1


def test_info_says_what_the_model_is(birds):
    done = run("info", birds / "birds.cavity")
    assert (done.exit_code, done.stderr) == (0, "")
    assert all(
        word in done.stdout
        for word in ("6 inducing", "Adelie, Chinstrap", "240 rows", "most important")
    )
    facts = json.loads(run("info", birds / "birds.cavity", "--json").output)
    assert (
        facts["target"] == "species" and facts["columns"]["id"] == "ignored (--ignore)"
    )
    np.testing.assert_allclose(sum(facts["relevance"].values()), 1)


def test_json_of_a_fit_is_one_object_and_quiet_is_quiet(birds, tmp_path):
    common = (
        "fit",
        birds / "penguins.csv",
        "--target",
        "species",
        "--ignore",
        "id",
        *SINGLE,
    )
    told = run(*common, "--out", tmp_path / "a", "--json")
    result = json.loads(told.stdout)
    assert (result["rows"], result["epochs"], len(result["classes"])) == (240, 3, 3)
    assert run(*common, "--out", tmp_path / "b", "--quiet").output == ""
    a, b = (cavity.load(p) for p in (tmp_path / "a", tmp_path / "b"))
    first, second = (
        c.predict_log_proba(Prepared(np.zeros((1, len(c.preparation_.names)))))
        for c in (a, b)
    )
    np.testing.assert_array_equal(first, second)  # the default seed is 0


@pytest.mark.parametrize("name", [slow("penguins.csv"), "penguins.parquet"])
def test_a_table_that_is_not_held_in_memory_gives_the_same_model(birds, tmp_path, name):
    rows = read(birds / "penguins.csv")
    pq.write_table(
        pa.table({k: [r[k] for r in rows] for k in rows[0]}),
        birds / "penguins.parquet",
        row_group_size=50,
    )
    # other efforts hold rows out of a table in memory only
    common = ("--target", "species", "--ignore", "id", "--method", "ep", *SINGLE)
    assert run("fit", birds / name, "--out", tmp_path / "held", *common).exit_code == 0
    flags = {"target": "species", "ignore": ["id"], "method": "ep", **SINGLE_FLAGS}
    fit_in_pieces(birds / name, out=tmp_path / "read", **flags)
    held, streamed = (cavity.load(tmp_path / m) for m in ("held", "read"))
    X = Prepared(
        np.random.default_rng(0).normal(size=(20, len(held.preparation_.names)))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # about names of columns
        np.testing.assert_allclose(
            streamed.predict_proba(X), held.predict_proba(X), rtol=1e-6
        )
    with pytest.raises(CavityError, match="validation = "):
        fit_in_pieces(birds / name, out="m", validation_fraction=0.1, **flags)


def test_a_file_of_settings_and_flags_agree(birds, tmp_path):
    (tmp_path / "c.toml").write_text(
        'target = "species"\nignore = ["id"]\nn-inducing = 5\nmax_epochs = 3\nmethod = '
        '"sep"\nkernel = "Matern32 + Linear"\n'
        'seed = 4\nlearn = ["kernel"]\n[columns]\nsex = "ignore"\n'
    )
    files = (
        birds / "penguins.csv",
        "--config",
        tmp_path / "c.toml",
        "--out",
        tmp_path / "m",
    )
    done = run("fit", *files, "--max-epochs", "2")
    assert done.exit_code == 0, done.output
    clf = cavity.load(tmp_path / "m")
    assert (clf.method, clf.n_inducing, clf.max_epochs, clf.random_state) == (
        "sep",
        5,
        2,
        4,
    )
    assert repr(clf.kernel).startswith("Matern32(") and "+ Linear(" in repr(clf.kernel)
    assert clf.training.learn == ("kernel",)
    assert "sex" not in clf.preparation_.inputs


def test_a_run_is_continued_from_its_checkpoint(birds, tmp_path):
    common = (
        "fit",
        birds / "penguins.csv",
        "--target",
        "species",
        "--ignore",
        "id",
        "--n-inducing",
        "5",
    )
    common += (
        "--method",
        "ep",
    )  # "auto" takes L-BFGS here, which continues from its best point
    kept = ("--checkpoint", tmp_path / "run.ckpt", "--resume")
    assert (
        run(*common, *kept, "--out", tmp_path / "m", "--max-epochs", "3").exit_code == 0
    )
    assert (
        run(*common, *kept, "--out", tmp_path / "m", "--max-epochs", "5").exit_code == 0
    )
    assert run(*common, "--out", tmp_path / "n", "--max-epochs", "5").exit_code == 0
    resumed = cavity.load(tmp_path / "m")
    whole = cavity.load(tmp_path / "n")
    assert resumed.n_epochs_ == 5
    X = Prepared(np.zeros((1, len(whole.preparation_.names))))
    np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))


def test_rows_of_their_own_to_stop_by(birds, tmp_path):
    (tmp_path / "c.toml").write_text(
        f'validation = "{birds / "new.csv"}"\npatience = 2\n'
    )
    files = (
        birds / "penguins.csv",
        "--config",
        tmp_path / "c.toml",
        "--out",
        tmp_path / "m",
    )
    done = run("fit", *files, "--target", "species", *QUICK)
    assert done.exit_code == 0 and "validation NLL" in done.output
    assert cavity.load(tmp_path / "m").calibration_ == "60 rows of eval_set"


def test_a_time_limit_includes_the_passes_that_read_the_table(monkeypatch):
    """Reading 2 million rows took a third of the limit, and was not counted."""
    monkeypatch.setattr(time, "perf_counter", lambda: 14.0)
    assert Deadline(10.0, None).left() is None
    assert not Deadline(10.0, None).is_over()
    assert Deadline(10.0, 60.0).left() == 56.0
    assert not Deadline(10.0, 60.0).is_over()
    assert 0 < Deadline(10.0, 3.0).left() < 1  # a fit needs some seconds
    assert Deadline(10.0, 3.0).is_over()


def test_a_time_limit_shortens_the_fit_and_is_noted(birds, tmp_path):
    common = [
        "fit",
        birds / "penguins.csv",
        "--target",
        "species",
        "--out",
        tmp_path / "m",
    ]
    done = run(*common, "--time-limit", "0.001")
    assert done.exit_code == 0 and "left no time for" in " ".join(done.output.split())
    stored = tensor_files.read_meta(tmp_path / "m", "model")
    assert stored["importance"] is None  # it takes seconds
    wrong = run(*common, "--time-limit", "-1")
    assert wrong.exit_code == 2 and "time_limit=-1.0 must be" in wrong.output


# ---------------------------------------------------------------- help
NAMES = [
    command.name or command.callback.__name__ for command in app.registered_commands
]


@pytest.mark.parametrize("name", ["", *NAMES])
def test_every_help_fits_a_screen_and_has_an_example(name):
    shown = run(*([name] if name else []), "--help").output
    lines = shown.splitlines()
    most = 24 if name else 24 + len(NAMES) - 10  # the list of commands
    assert len(lines) <= most and max(map(len, lines)) <= 80
    assert f"Example: cavity {name or 'fit'}" in " ".join(shown.split())
    assert name in run("--help").output


# ---------------------------------------------------------------- as a user starts them
@pytest.mark.slow
@pytest.mark.parametrize("method", ["ep", "auto"])
def test_under_torchrun_the_model_is_that_of_one_process(birds, tmp_path, method):
    small = f"--method {method} --n-inducing 5 --max-epochs 3 --batch-size 50".split()
    common = ["fit", birds / "penguins.csv", *TRAIN, *small]
    launcher = "-m torch.distributed.run --standalone --nproc-per-node=2 --monitor-interval=0.2 -m cavity"
    done = command(*common, "--out", tmp_path / "two", module=launcher.split())
    assert done.returncode == 0, done.stderr[-3000:]
    assert (
        done.stdout.count("Saved") == 1
        and done.stdout.count("240 rows, 6 columns") == 1
    )  # one rank speaks
    assert run(*common, "--out", tmp_path / "one").exit_code == 0
    one, two = (cavity.load(tmp_path / name) for name in ("one", "two"))
    X = Prepared(
        np.random.default_rng(0).normal(size=(30, len(one.preparation_.names)))
    )
    np.testing.assert_allclose(
        two.predict_log_proba(X), one.predict_log_proba(X), rtol=1e-8, atol=1e-8
    )


def test_a_wide_table_prints_only_its_first_columns(tmp_path):
    names = [f"gene {i}" for i in range(90)]
    rows = np.random.default_rng(0).normal(size=(30, 90))
    lines = [",".join([*names, "kind"])]
    for i, row in enumerate(rows):
        lines.append(",".join([*(f"{cell:.2f}" for cell in row), "ab"[i % 2]]))
    (tmp_path / "wide.csv").write_text("\n".join(lines))
    given = ("--target", "kind", "--out", tmp_path / "m")
    done = run("fit", tmp_path / "wide.csv", *given, *QUICK)
    assert done.exit_code == 0
    assert "gene 59 " in done.output and "gene 60 " not in done.output
    assert "and 30 more columns; `cavity info` lists all" in done.output
    assert "gene 89 " in run("info", tmp_path / "m").output
