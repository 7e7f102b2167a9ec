"""Tables whose bytes are damaged: read as another reader reads them, or refused with an
error of ours.
"""

from __future__ import annotations

import csv
import gzip
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .children import Item, count_series
from .counting import SURVIVED, Outcome, Tally, broken, refused, silent
from .fits import make_rows

NAMES = ("height", "colour", "kind")
HOSTILE = (b"nan", b"inf", b"-", b'"', b"\0", b"\xff\xfe", b"1e999", b",",
           b"\r", b"\n\n", b"", b"9" * 400, "é€".encode(), b"=1+1")  # fmt: skip


def mutate(content: bytes, rng: np.random.Generator) -> bytes:
    """Change bytes, insert or remove some, repeat a stretch, or cut the end; one, two
    or four times.
    """
    for _ in range(int(rng.choice([1, 2, 4], p=(0.7, 0.2, 0.1)))):
        at, how = int(rng.integers(len(content) + 1)), int(rng.integers(9))
        size = int(rng.integers(1, 20))
        if how == 0:
            content = content[:at]
        elif how == 1:
            content = content[:at] + content[at + size :]
        elif how == 2:
            content = content[:at] + rng.bytes(size) + content[at + size :]
        elif how == 3:
            content = content[:at] + HOSTILE[rng.integers(len(HOSTILE))] + content[at:]
        elif how == 4:
            content = content[:at] + content[at : at + size] * 2 + content[at + size :]
        elif content:
            at = min(at, len(content) - 1)
            content = (
                content[:at]
                + bytes([content[at] ^ 1 << int(rng.integers(8))])
                + content[at + 1 :]
            )
    return content


def make_sound_files(folder: Path) -> dict[str, bytes]:
    """Return a sound file of every kind by name."""
    import pyarrow as pa
    import pyarrow.feather as feather
    import pyarrow.parquet as pq

    X, y = make_rows(40)
    colour, kind = (
        np.array(["red", "green", "blue, or so"])[y],
        np.array(["a", "b", "c"])[y],
    )
    table = pa.table({"height": X[:, 0], "colour": colour, "kind": kind})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(NAMES)
    writer.writerows(zip(X[:, 0].tolist(), colour, kind, strict=True))
    lines = text.getvalue().encode()
    pq.write_table(table, folder / "s.parquet", row_group_size=15)
    pq.write_table(
        table, folder / "plain.parquet", compression="none", use_dictionary=False
    )
    feather.write_feather(table, str(folder / "s.arrow"), compression="uncompressed")
    return {
        "t.csv": lines, "t.tsv": lines.replace(b",", b"\t"), "t.csv.gz": gzip.compress(lines, mtime=0),
        "t.arrow": (folder / "s.arrow").read_bytes(),
        "t.parquet": (folder / "s.parquet").read_bytes(), "plain.parquet": (folder / "plain.parquet").read_bytes(),
    }  # fmt: skip


# ---------------------------------------------------------------- other readers
def read_otherwise(path: Path) -> dict[str, list[Any]] | None:
    """Return the columns as another reader finds them; None if it cannot read the file."""
    import pyarrow.feather as feather
    import pyarrow.parquet as pq

    try:
        if path.suffix in (".parquet", ".arrow"):
            table = (
                pq.read_table(path)
                if path.suffix == ".parquet"
                else feather.read_table(path, memory_map=False)
            )
            table.validate(full=True)
            return table.to_pydict()
    except Exception:
        return None
    return None


def same(ours: dict[str, list[Any]], others: dict[str, list[Any]]) -> bool:
    """Whether all columns that we read are those of the other reader."""
    return all(
        repr(values) == repr(others[name])
        for name, values in ours.items()
        if name in others
    )


# ---------------------------------------------------------------- ours
def read_table(path: Path) -> tuple[dict[str, list[Any]], Any]:
    """Read and prepare a table as `cavity fit` does; return its columns and the
    features.
    """
    from cavity import Preparation
    from cavity.tables.files.table_files import open_table

    table = open_table(path)
    target = "kind" if "kind" in table.names else None
    learnt = Preparation(target=target).fit_batches(table.chunks())
    parts, columns = (
        [np.zeros((0, len(learnt.names)))],
        {name: [] for name in learnt.inputs},
    )
    for chunk in table.chunks():
        parts.append(learnt.transform(chunk))
        for name in columns:
            columns[name] += chunk.table.column(name).to_pylist()
        if learnt.target is not None:
            learnt.labels(chunk)
    return columns, np.concatenate(parts)


def check_table(path: Path) -> Outcome:
    columns, X = read_table(path)
    if not np.isfinite(X).all():
        return silent("features that are not finite")
    others = read_otherwise(path)
    return (
        SURVIVED
        if others is None or same(columns, others)
        else silent("other cells than another reader finds")
    )


def check_fit(path: Path) -> Outcome:
    """Fit on the numbers of a table, without a preparation."""
    from cavity import GPClassifier

    clf = GPClassifier(
        "sep", n_inducing=3, max_epochs=1, batch_size=20, random_state=0, device="cpu"
    )
    clf.fit(path, target="kind")
    P = clf.predict_proba(np.zeros((1, clf.n_features_in_)))
    return (
        SURVIVED
        if np.isfinite(P).all()
        else silent("probabilities that are not finite")
    )


def make_inputs(folder: Path, seed: int) -> Item:
    """Return runs that read a damaged file; every tenth goes through `cavity predict`."""
    from cavity import CavityError

    sound = make_sound_files(folder)
    predict = make_predict(folder, sound["t.csv"])
    names = list(sound)

    def item(i: int) -> Outcome:
        rng, name = np.random.default_rng([seed, i]), names[i % len(names)]
        path = folder / name
        path.write_bytes(mutate(sound[name], rng))
        check: Callable[[Path], Outcome] = check_fit if i % 20 == 6 else check_table
        if i % 10 == 3:
            check = predict
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = check(path)
        except CavityError as error:
            return refused(error)
        return found._replace(detail=f"item {i}, {name}: {found.detail}")

    return item


def make_predict(folder: Path, sound: bytes) -> Callable[[Path], Outcome]:
    """Return a run of `cavity predict` with a model of the sound table."""
    from typer.testing import CliRunner

    from cavity.cli.app import app

    (folder / "train.csv").write_bytes(sound)
    model, out = str(folder / "model.cavity"), folder / "p.csv"
    words = "--target kind --max-epochs 3 --device cpu --out".split()
    assert (
        CliRunner()
        .invoke(app, ["fit", str(folder / "train.csv"), *words, model])
        .exit_code
        == 0
    )

    def predict(path: Path) -> Outcome:
        out.unlink(missing_ok=True)
        done = CliRunner().invoke(app, ["predict", model, str(path), "--out", str(out)])
        if (
            done.exit_code == 1
            and isinstance(done.exception, SystemExit)
            and not out.exists()
        ):
            return refused(done.output)
        if done.exit_code != 0:
            return broken(f"{done.exception!r} {done.output}")
        with out.open() as file:
            rows = list(csv.DictReader(file))
        P = np.array([[float(row[f"p_{c}"]) for c in "abc"] for row in rows])
        right = len(P) and np.isfinite(P).all() and np.allclose(P.sum(1), 1)
        return SURVIVED if right else silent("probabilities that do not sum to 1")

    return predict


def count_damaged_inputs(n: int, rng: np.random.Generator, folder: Path) -> Tally:
    """Read CSV, Arrow and Parquet files with damaged bytes."""
    return count_series(make_inputs, n, folder, int(rng.integers(1 << 31)))
