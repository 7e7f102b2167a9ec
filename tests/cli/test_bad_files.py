"""Files that are not tables: every command says what is wrong, exits with 1, and
changes nothing.
"""

import gzip
import os
from itertools import product

import numpy as np
import pytest
from typer.testing import CliRunner

from cavity.cli.app import app
from tests.cli.running import run

ROWS = "a,b,y\n" + "".join(
    f"{i % 7},{'uv'[i % 2]},{'pq'[i % 3 > 0]}\n" for i in range(30)
)
NO_TABLE = {
    "empty": (b"", "is empty"),
    "header": (b"a,b,y\n", "no rows"),
    "no_column": (b"b,y\nu,p\n", "'a'"),
    "no_labels": (b"a,b,y\n1,u,\n2,v,\n", "label"),
    "binary": (np.random.default_rng(0).bytes(4000), "is not a text file"),
    "zeros": (bytes(3000), "is not a text file"),
    "ragged": (b"a,b,y\n1,u\n", "as many cells as the header"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    (folder / "rows.csv").write_text(ROWS)
    out = folder / "m.cavity"
    fit = ("--target", "y", "--effort", "fast", "--out", out)
    assert run("fit", folder / "rows.csv", *fit).exit_code == 0
    return out


REFUSED = set(product(("predict", "evaluate", "report"), (*NO_TABLE, "folder")))


@pytest.mark.parametrize("command, kind", sorted(REFUSED - {("predict", "no_labels")}))
def test_a_bad_table_is_refused_and_nothing_is_lost(command, kind, model, tmp_path):
    content, message = NO_TABLE.get(kind, (b"", "is a folder"))
    path, out = (
        tmp_path / "bad.csv",
        tmp_path / ("out.html" if command == "report" else "out.csv"),
    )
    path.mkdir() if kind == "folder" else path.write_bytes(content)
    before = model.read_bytes()
    out.write_text("an older result")
    result = run(
        command, model, path, *(() if command == "evaluate" else ("--out", out))
    )
    assert result.exit_code == 1
    assert message in " ".join(result.output.split())
    assert not any(ord(c) < 32 and c not in "\r\n\t\x1b" for c in result.output)
    assert out.read_text() == "an older result"
    assert model.read_bytes() == before


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_rows_come_from_standard_input(name, pack, model, tmp_path):
    (tmp_path / "rows.csv").write_text(ROWS)
    expected = run("predict", model, tmp_path / "rows.csv").stdout
    found = CliRunner().invoke(
        app, ["predict", str(model), name], input=pack(ROWS.encode())
    )
    assert found.exit_code == 0
    assert found.stdout == expected


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_refused_because_tables_are_read_several_times(model, tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    result = run("predict", model, tmp_path / "pipe.csv")
    assert result.exit_code == 1 and "is a pipe or a device" in " ".join(
        result.output.split()
    )


@pytest.mark.parametrize("kind", [k for k in NO_TABLE if k != "no_column"])
def test_a_fit_to_a_bad_table_keeps_an_older_model(kind, tmp_path):
    content, message = NO_TABLE[kind]
    (tmp_path / "bad.csv").write_bytes(content)
    out = tmp_path / "m.cavity"
    out.write_text("an older model")
    result = run("fit", tmp_path / "bad.csv", "--target", "y", "--out", out)
    assert result.exit_code == 1
    assert message in " ".join(result.output.split())
    assert out.read_text() == "an older model"


@pytest.mark.parametrize(
    "command", ["predict", "evaluate", "report", "serve", "export", "info"]
)
def test_a_bad_model_is_refused(command, tmp_path):
    (tmp_path / "bad.cavity").write_bytes(np.random.default_rng(1).bytes(2000))
    (tmp_path / "rows.csv").write_text(ROWS)
    more = {"serve": [], "export": ["--onnx", tmp_path / "m.onnx"], "info": []}
    for name in ("bad.cavity", "absent.cavity", "."):
        result = run(
            command, tmp_path / name, *more.get(command, [tmp_path / "rows.csv"])
        )
        assert result.exit_code == 1, result.output
        assert "error:" in result.output


FIT, PREDICT = "fit rows.csv --target y --out", "predict m.cavity rows.csv --out"
REPORT, EXPORT = "report m.cavity rows.csv --out", "export m.cavity --onnx"
READ, KIND = "would replace a file that is read", "the name must end in"


@pytest.mark.parametrize(
    ("command", "out", "words"),
    [
        (FIT, "rows.csv", READ), (PREDICT, "rows.csv", READ), (REPORT, "m.cavity", READ), (EXPORT, "./m.cavity", READ),
        (FIT, "other.csv", KIND), (PREDICT, "other.cavity", KIND), (REPORT, "other.cavity", KIND), (EXPORT, "other.csv", KIND),
    ],
)  # fmt: skip
def test_a_result_replaces_neither_what_it_is_made_from_nor_another_kind_of_file(
    command, out, words, model, tmp_path, monkeypatch
):
    """`--out titanic.csv` replaced a table by a model."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text(ROWS)
    (tmp_path / "m.cavity").write_bytes(model.read_bytes())
    for name in ("other.csv", "other.cavity"):
        (tmp_path / name).write_text("another file")
    before = (tmp_path / out).read_bytes()
    result = run(*command.split(), out)
    assert (
        result.exit_code == 2
        and words in result.output
        and (tmp_path / out).name in result.output
    )
    assert (tmp_path / out).read_bytes() == before


def test_a_result_does_not_replace_a_file_of_the_folder_that_is_read(model, tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "1.csv").write_text(ROWS)
    result = run("predict", model, parts, "--out", parts / "1.csv")
    assert result.exit_code == 2 and "would replace" in result.output
    assert (parts / "1.csv").read_text() == ROWS
    result = run("predict", model, parts, "--out", parts / "new.parquet")
    assert result.exit_code == 2 and "new.parquet" in result.output
