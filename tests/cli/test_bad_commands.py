"""Bad input of the commands, in this process and as a user starts them: exit codes and messages."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.running import SINGLE, command, run
from support import slow


def spoilt(folder):
    """Files that are wrong in some way."""
    (folder / "empty.csv").write_bytes(b"")
    (folder / "header.csv").write_text("bill,species\n")
    (folder / "wide.csv").write_bytes(b"x," * 10**6 + b"species\n")
    (folder / "folder").mkdir(exist_ok=True)
    (folder / "short.csv").write_text("x,y\n1,a\n2,b\n")
    (folder / "other.csv").write_text("bill,weight\n1,2\n")
    (folder / "unknown.csv").write_text("bill,mass,island,sex,species\n40,3000,Dream,male,Emperor\n")
    (folder / "dates.csv").write_text("when,x,species\n2020-01-01,1,a\n2020-01-02,2,b\n")
    (folder / "nonsense.parquet").write_bytes(b"PAR1" + bytes(50) + b"PAR1")
    (folder / "bad.toml").write_text("n_inducng = 5\n")
    (folder / "worse.toml").write_text("n_inducing = = 5\n")
    (folder / "strict.toml").write_text('strict = "no"\n')
    (folder / "weights.toml").write_text('weight = "species"\n')
    (folder / "void.csv").write_text("bill,mass,island,sex,species,w\n40,3000,Dream,male,Gentoo,0\n")
    (folder / "csv files").mkdir(exist_ok=True)
    (folder / "csv files" / "1.csv").write_text("bill,species\n1,a\n")
    pq.write_table(
        pa.table({"list": [[1]], **{c: [1.0] for c in ("bill", "mass", "island", "sex")}}),
        folder / "list.parquet",
    )
    (folder / "half.cavity").write_bytes((folder / "birds.cavity").read_bytes()[:5000])


FIT, PREDICT, EVALUATE = ("fit",), ("predict", "birds.cavity"), ("evaluate", "birds.cavity")
TO = ("--target", "species", "--out", "m.cavity")
BAD = {
    "a missing table": (1, ("fit", "none.csv", *TO), "file or folder 'none.csv' does not exist"),
    "a missing target": (1, ("fit", "new.csv", "--out", "m", "--target", "specie"), "does not exist; did you mean 'species'?"),
    "no target": (2, ("fit", "penguins.csv", "--out", "m"), "--target is missing"),
    "out is a folder": (2, ("fit", "penguins.csv", "--target", "species", "--out", "folder"), "is a folder: name a file"),
    "out in no folder": (2, ("fit", "penguins.csv", "--target", "species", "--out", "no/m"), "the folder 'no' does not exist"),
    "an unknown flag": (2, ("fit", "penguins.csv", "--taget", "species"), "No such option: --taget"),
    "an unknown column to ignore": (1, ("fit", "penguins.csv", *TO, "--ignore", "idd"), "'idd' does not exist"),
    "an empty table": (1, ("fit", "empty.csv", *TO), "is empty"),
    "a table without rows": (1, ("fit", "header.csv", *TO), "has no rows"),
    "a header of a million columns": (1, ("fit", "wide.csv", *TO), "1,000,001 columns"),
    "a folder without tables": (1, ("fit", "folder", *TO), "does not contain, a file that can be read"),
    "dates": (1, ("fit", "dates.csv", *TO, "--strict"), "'when' has dates or times"),
    "damaged Parquet": (1, ("fit", "nonsense.parquet", *TO), "cannot be read"),
    "a model as a table": (1, ("fit", "birds.cavity", *TO), "unknown file type"),
    "an unknown method": (2, ("fit", "penguins.csv", *TO, "--ignore", "id", "--method", "svm"), "method='svm' is unknown"),
    "an unknown kernel": (2, ("fit", "penguins.csv", *TO, "--kernel", "RBF + Cubic"), "kernel 'Cubic' is unknown"),
    "an unknown device": (2, ("fit", "penguins.csv", *TO, "--ignore", "id", "--device", "toaster"), "device='toaster' is unknown"),
    "no number": (2, ("fit", "penguins.csv", *TO, "--n-inducing", "many"), "--n-inducing 'many' is not a number"),
    "no whole number": (2, ("fit", "penguins.csv", *TO, "--max-epochs", "2.5"), "'--max-epochs'"),
    "an unknown setting": (2, ("fit", "penguins.csv", *TO, "--config", "bad.toml"), "'n_inducng'; did you mean 'n_inducing'"),
    "no TOML": (2, ("fit", "penguins.csv", *TO, "--config", "worse.toml"), "is not TOML"),
    "no settings": (2, ("fit", "penguins.csv", *TO, "--config", "none.toml"), "none.toml cannot be read"),
    "resume without a checkpoint": (2, ("fit", "penguins.csv", *TO, "--ignore", "id", "--resume"), "resume=True needs checkpoint="),
    "text for a switch": (2, ("fit", "penguins.csv", *TO, "--config", "strict.toml"), "strict = 'no' must be true or false"),
    "a target as weight": (2, ("fit", "penguins.csv", *TO, "--config", "weights.toml"), "'species' is the target: name another"),
    "a large seed": (2, ("fit", "penguins.csv", *TO, "--seed", str(2**32)), "must be a whole number from 0 to 4294967295"),
    "a checkpoint in a model": (
        2, ("fit", "penguins.csv", *TO, "--checkpoint", "birds.cavity"), "--checkpoint birds.cavity: the name must end in .ckpt"
    ),
    "a checkpoint in the new model": (
        2, ("fit", "penguins.csv", "--target", "species", "--out", "run", "--checkpoint", "./run"), "is also --out: choose another"
    ),
    "a folder of CSV files": (1, ("fit", "csv files", *TO), "Of CSV files the command line reads one at a time"),
    "an empty name": (1, (*PREDICT, ""), "file or folder '' does not exist"),
    "a missing model": (1, ("predict", "none.cavity", "new.csv"), "file or folder 'none.cavity' does not exist"),
    "half a model": (1, ("predict", "half.cavity", "new.csv"), "half.cavity is truncated"),
    "a target in another case": (1, ("fit", "penguins.csv", "--out", "m", "--target", "SPECIES"), "did you mean 'species'?"),
    "a short target in another case": (1, ("fit", "short.csv", "--out", "m", "--target", "Y"), "did you mean 'y'?"),
    "swapped arguments": (
        1, ("predict", "new.csv", "birds.cavity"), "new.csv is a table, not a model: did you swap the arguments?"
    ),
    "swapped arguments of evaluate": (1, ("evaluate", "new.csv", "birds.cavity"), "did you swap the arguments?"),
    "a table to describe": (1, ("info", "new.csv"), "new.csv is a table, not a model."),
    "a graph of another suffix": (2, ("export", "birds.cavity", "--onnx", "p.txt"), "--onnx p.txt: the name must end in .onnx"),
    "a folder as a model": (1, ("info", "folder"), "folder is not a file"),
    "a missing table to predict": (1, (*PREDICT, "none.csv"), "does not exist"),
    "wrong columns": (1, (*PREDICT, "other.csv"), "other.csv has no column 'mass' (and 2 more), which the model was trained with"),
    "an unknown kind of output": (2, (*PREDICT, "new.csv", "--out", "p.xlsx"), "must end in .csv or .parquet"),
    "output in a folder that is not there": (2, (*PREDICT, "new.csv", "--out", "no/p.csv"), "the folder 'no' does not exist"),
    "an unknown column to keep": (1, (*PREDICT, "new.csv", "--keep", "name"), "--keep 'name'"),
    "a nested column to keep": (1, (*PREDICT, "list.parquet", "--keep", "list"), "cannot hold a column of --keep (Unsupported"),
    "no row that counts": (1, (*EVALUATE, "void.csv", "--weight", "w"), "void.csv has no rows with a positive weight"),
    "a background that lacks columns": (
        1, ("explain", "birds.cavity", "new.csv", "--background", "other.csv"), "other.csv has no column 'mass'"
    ),
    "JSON and predictions on one stdout": (2, (*PREDICT, "new.csv", "--json"), "write the predictions to a file with --out"),
    "an empty table to evaluate": (1, (*EVALUATE, "empty.csv"), "is empty"),
    "a label that the model does not know": (1, (*EVALUATE, "unknown.csv"), "row 1 of unknown.csv has the label 'Emperor'"),
    "no labels": (1, (*EVALUATE, "other.csv"), "has no column 'species' for the labels"),
    "a table as a model to export": (1, ("export", "new.csv", "--onnx", "birds.onnx"), "new.csv is a table, not a model."),
    "an unknown command": (2, ("train", "penguins.csv"), "No such command 'train'"),
    "too few arguments": (2, ("evaluate", "birds.cavity"), "Missing argument"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_ends_with_a_code_and_a_message(birds, name, monkeypatch):
    code, arguments, words = BAD[name]
    monkeypatch.chdir(birds)
    if not (birds / "half.cavity").exists():
        spoilt(birds)
    done = run(*arguments)
    assert done.exit_code == code, done.output
    message = done.stderr if done.stderr else done.output
    assert words in " ".join(message.split()) and len(message) < 1500
    assert not (birds / "m.cavity").exists()


def test_a_model_may_have_the_suffix_of_a_table(birds, tmp_path):
    model = tmp_path / "model.txt"
    model.write_bytes((birds / "birds.cavity").read_bytes())
    assert run("info", model).exit_code == 0


def test_unseen_categories_are_noted_or_refused(birds, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("bill,mass,island,sex\n40,3000,Anvers,male\n41,3100,Anvers,male\n")
    done = run("predict", birds / "birds.cavity", table, "--out", tmp_path / "p.csv")
    assert (
        done.exit_code == 0
        and "note: column 'island' has categories that the training rows did not have" in done.stderr
    )
    (tmp_path / "c.toml").write_text('unseen = "error"\n')
    fit = (
        "fit",
        birds / "penguins.csv",
        "--target",
        "species",
        "--ignore",
        "id",
        "--out",
        tmp_path / "m",
        *SINGLE,
    )
    assert run(*fit, "--config", tmp_path / "c.toml").exit_code == 0
    done = run("predict", tmp_path / "m", table, "--out", tmp_path / "q.csv")
    assert done.exit_code == 1 and "'island' has the category 'Anvers' in row 1" in done.stderr
    assert not (tmp_path / "q.csv").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_files_that_may_not_be_read_or_written(birds, tmp_path):
    closed = tmp_path / "closed.csv"
    closed.write_text("x,y\n1,2\n")
    closed.chmod(0)
    assert "Permission denied" in run("fit", closed, "--target", "y", "--out", tmp_path / "m").stderr
    tmp_path.chmod(0o500)
    done = run("fit", birds / "penguins.csv", "--target", "species", "--out", tmp_path / "m")
    tmp_path.chmod(0o700)
    assert done.exit_code == 1 and "is not writable" in done.stderr


def test_permission_denied_is_a_message(birds, monkeypatch):
    """Simulate a user without permission, since tests may run as root."""

    def denied(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.chdir(birds)
    monkeypatch.setattr(Path, "open", denied)
    pq.write_table(pa.table({"x": [1, 2], "y": [0, 1]}), "t.parquet")
    for arguments in (("fit", "t.parquet", "--target", "y", "--out", "m"), ("info", "birds.cavity")):
        done = run(*arguments)
        assert done.exit_code == 1 and "Permission denied" in done.stderr


def test_a_wrong_option_is_refused_before_the_table_is_read(birds, tmp_path, monkeypatch):
    monkeypatch.setattr("cavity.cli.fitting.inspect_table", lambda *_: pytest.fail("the table was read"))
    result = run("fit", birds, "--target", "species", "--out", tmp_path / "m", "--method", "epp")
    assert result.exit_code == 2 and "method='epp' is unknown" in result.output


# ---------------------------------------------------------------- as a user starts it


@pytest.mark.parametrize(
    "code, arguments, words",
    [
        (1, ("fit", "none.csv", *TO), "error: file or folder 'none.csv' does not exist."),
        (1, (*PREDICT, "penguins.toml"), "error: file or folder 'penguins.toml' does not exist."),
        slow(
            1, ("evaluate", "none.cavity", "new.csv"), "error: file or folder 'none.cavity' does not exist."
        ),
        slow(1, ("info", "none.cavity"), "error: file or folder 'none.cavity' does not exist."),
    ],
    ids=["fit", "predict", "evaluate", "info"],
)
def test_a_real_process_ends_with_a_code_and_a_message(birds, code, arguments, words):
    done = command(*arguments, cwd=birds)
    assert done.returncode == code and words in done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD)
def test_all_bad_input_ends_so_in_a_process_of_its_own(birds, name):
    code, arguments, words = BAD[name]
    if not (birds / "half.cavity").exists():
        spoilt(birds)
    done = command(*arguments, cwd=birds)
    said = " ".join((done.stderr or done.stdout).split())
    assert done.returncode == code and words in said and "Traceback" not in done.stdout + done.stderr
