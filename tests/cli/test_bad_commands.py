"""Bad input of the commands, in this process and as a user starts them: exit codes and
messages.
"""

import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.running import run

FILES = {
    "wide.csv": "x," * 10**6 + "species\n",
    "short.csv": "x,y\n1,a\n2,b\n",
    "other.csv": "bill,weight\n1,2\n",
    "unknown.csv": "bill,mass,island,sex,species\n40,3000,Dream,male,Emperor\n",
    "dates.csv": "when,x,species\n2020-01-01,1,a\n2020-01-02,2,b\n",
    "void.csv": "bill,mass,island,sex,species,w\n40,3000,Dream,male,Gentoo,0\n",
    "nonsense.parquet": "PAR1" + "\0" * 50 + "PAR1",
    "typo.toml": "n_inducng = 5\n",
    "broken.toml": "n_inducing = = 5\n",
    "strict.toml": 'strict = "no"\n',
    "weights.toml": 'weight = "species"\n',
    "csvs/1.csv": "bill,species\n1,a\n",
    "folder/notes.md": "",
}


@pytest.fixture(scope="module")
def spoilt(birds):
    """The folder of the birds with files that are wrong in some way."""
    for name, text in FILES.items():
        (birds / name).parent.mkdir(exist_ok=True)
        (birds / name).write_text(text)
    nested = {"list": [[1]], **{c: [1.0] for c in ("bill", "mass", "island", "sex")}}
    pq.write_table(pa.table(nested), birds / "list.parquet")
    (birds / "half.cavity").write_bytes((birds / "birds.cavity").read_bytes()[:5000])
    return birds


TO = "--target species --out m.cavity"
BAD = [  # exit code, command, the word that matters
    (1, f"fit none.csv {TO}", "'none.csv'"),
    (1, "fit new.csv --out m --target specie", "'species'?"),
    (1, "fit penguins.csv --out m --target SPECIES", "'species'?"),
    (1, "fit short.csv --out m --target Y", "'y'?"),
    (2, "fit penguins.csv --out m", "--target"),
    (2, "fit penguins.csv --target species --out folder", "folder"),
    (2, "fit penguins.csv --target species --out no/m", "'no'"),
    (2, "fit penguins.csv --taget species", "--taget"),
    (1, f"fit penguins.csv {TO} --ignore idd", "'idd'"),
    (1, f"fit wide.csv {TO}", "1,000,001"),
    (1, f"fit folder {TO}", "folder"),
    (1, f"fit csvs {TO}", "CSV"),
    (1, f"fit dates.csv {TO} --strict", "dates"),
    (1, f"fit nonsense.parquet {TO}", "nonsense.parquet"),
    (1, f"fit birds.cavity {TO}", "file type"),
    (2, f"fit penguins.csv {TO} --method svm", "method='svm'"),
    (2, f"fit penguins.csv {TO} --kernel 'RBF + Cubic'", "'Cubic'"),
    (2, f"fit penguins.csv {TO} --device toaster", "'toaster'"),
    (2, f"fit penguins.csv {TO} --n-inducing many", "--n-inducing"),
    (2, f"fit penguins.csv {TO} --max-epochs 2.5", "--max-epochs"),
    (2, f"fit penguins.csv {TO} --config typo.toml", "'n_inducing'"),
    (2, f"fit penguins.csv {TO} --config broken.toml", "TOML"),
    (2, f"fit penguins.csv {TO} --config none.toml", "none.toml"),
    (2, f"fit penguins.csv {TO} --config strict.toml", "strict"),
    (2, f"fit penguins.csv {TO} --config weights.toml", "'species'"),
    (2, f"fit penguins.csv {TO} --group species", "'species'"),
    (2, f"fit penguins.csv {TO} --group sex --regression", "--group"),
    (1, f"fit penguins.csv {TO} --group beak", "'beak'"),
    (2, f"fit penguins.csv {TO} --resume", "checkpoint="),
    (2, f"fit penguins.csv {TO} --seed {2**32}", "4294967295"),
    (2, f"fit penguins.csv {TO} --checkpoint birds.cavity", ".ckpt"),
    (2, "fit penguins.csv --target species --out run --checkpoint ./run", "--out"),
    (1, "predict birds.cavity ''", "''"),
    (1, "predict none.cavity new.csv", "'none.cavity'"),
    (1, "predict half.cavity new.csv", "truncated"),
    (1, "predict new.csv birds.cavity", "swap"),
    (1, "evaluate new.csv birds.cavity", "swap"),
    (1, "info new.csv", "table"),
    (1, "export new.csv --onnx birds.onnx", "table"),
    (2, "export birds.cavity --onnx p.txt", ".onnx"),
    (1, "info folder", "not a file"),
    (1, "predict birds.cavity other.csv", "'mass'"),
    (2, "predict birds.cavity new.csv --out p.xlsx", ".parquet"),
    (2, "predict birds.cavity new.csv --out no/p.csv", "'no'"),
    (1, "predict birds.cavity new.csv --keep name", "'name'"),
    (1, "predict birds.cavity list.parquet --keep list", "--keep"),
    (2, "predict birds.cavity new.csv --json", "--out"),
    (1, "explain birds.cavity new.csv --background other.csv", "other.csv"),
    (1, "evaluate birds.cavity void.csv --weight w", "weight"),
    (1, "evaluate birds.cavity unknown.csv", "'Emperor'"),
    (1, "evaluate birds.cavity other.csv", "'species'"),
    (2, "train penguins.csv", "'train'"),
    (2, "evaluate birds.cavity", "Missing"),
]


@pytest.mark.parametrize("code, words, said", BAD, ids=[words for _, words, _ in BAD])
def test_bad_input_ends_with_a_code_and_a_message(
    spoilt, code, words, said, monkeypatch
):
    monkeypatch.chdir(spoilt)
    done = run(*shlex.split(words))
    assert done.exit_code == code, done.output
    message = done.stderr or done.output
    assert said in " ".join(message.split()) and len(message) < 1500
    assert not (spoilt / "m.cavity").exists()


def test_a_model_may_have_the_suffix_of_a_table(birds, tmp_path):
    model = tmp_path / "model.txt"
    model.write_bytes((birds / "birds.cavity").read_bytes())
    assert run("info", model).exit_code == 0


def test_unseen_categories_are_noted(birds, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("bill,mass,island,sex\n40,3000,Anvers,male\n41,3100,Anvers,male\n")
    done = run("predict", birds / "birds.cavity", table, "--out", tmp_path / "p.csv")
    assert done.exit_code == 0 and "'island'" in done.stderr


def test_permission_denied_is_a_message(birds, monkeypatch):
    """Simulate a user without permission, since tests may run as root."""

    def denied(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.chdir(birds)
    monkeypatch.setattr(Path, "open", denied)
    pq.write_table(pa.table({"x": [1, 2], "y": [0, 1]}), "t.parquet")
    for arguments in (
        ("fit", "t.parquet", "--target", "y", "--out", "m"),
        ("info", "birds.cavity"),
    ):
        done = run(*arguments)
        assert done.exit_code == 1 and "Permission denied" in done.stderr


def test_a_wrong_option_is_refused_before_the_table_is_read(
    birds, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        "cavity.cli.fitting.inspect_table", lambda *_: pytest.fail("the table was read")
    )
    result = run(
        "fit", birds, "--target", "species", "--out", tmp_path / "m", "--method", "epp"
    )
    assert result.exit_code == 2 and "method='epp' is unknown" in result.output
