"""Files from other tools: read what is meaningful, and raise clear errors for the rest."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

import cavity
from cavity import Preparation
from cavity.cli.models import Model
from cavity.cli.serving.application import make_app
from cavity.tables.files.arrow_source import Arrow
from cavity.tables.files.table_files import open_table
from cli.running import run

pytestmark = pytest.mark.usefixtures("few_trees")

JSON = {"content-type": "application/json"}
RNG = np.random.default_rng(0)
MEANS = {"height": (160, 185), "weight": (55, 90)}
SIZES = pd.DataFrame(
    {
        name: np.r_[RNG.normal(a, 4, 20), RNG.normal(b, 4, 20)]
        for name, (a, b) in MEANS.items()
    }
)
LABELS = np.repeat(["small", "tall"], 20)


def fitted(path: Path, frame: pd.DataFrame, *words: str) -> Path:
    """A model of a frame, by the command line."""
    table = path / "train.csv"
    frame.to_csv(table, index=False)
    quick = ("--max-epochs", 5, "--effort", "fast", "--quiet")
    result = run(
        "fit", table, "--target", "k", "--out", path / "m.cavity", *quick, *words
    )
    assert result.exit_code == 0, result.output
    return path / "m.cavity"


@pytest.fixture(scope="module")
def sizes(tmp_path_factory):
    return fitted(tmp_path_factory.mktemp("sizes"), SIZES.assign(k=LABELS))


def asked(model: Path, rows: list) -> dict:
    client = TestClient(make_app(Model.open(model)), base_url="http://localhost")
    return client.post(
        "/predict", content=json.dumps({"rows": rows}), headers=JSON
    ).json()


@pytest.mark.parametrize("row", [[10**400, 1], {"height": 10**400, "weight": 1}])
def test_numbers_too_large_for_any_type_are_refused(sizes, row):
    found = asked(sizes, [[160, 55], row])
    assert "below 1e308" in found["detail"]
    assert [(e["row"], e["column"]) for e in found["errors"]] == [(2, "height")]


def test_the_index_of_a_frame_is_no_column(tmp_path):
    frame = SIZES.assign(k=np.repeat(["a", "b"], 20)).sample(frac=1, random_state=0)
    frame.to_parquet(tmp_path / "t.parquet")
    assert pq.read_schema(tmp_path / "t.parquet").names[-1] == "__index_level_0__"
    assert Arrow(tmp_path / "t.parquet", target="k").names == ("height", "weight")
    for rows in (frame, open_table(tmp_path / "t.parquet")):
        batches = [rows] if rows is frame else rows.chunks()
        assert Preparation(target="k").fit_batches(batches).inputs == (
            "height",
            "weight",
        )


def test_a_quote_that_is_never_closed_is_refused(sizes, tmp_path):
    head = "height,weight,comment\n160,55,fine\n"
    (tmp_path / "good.csv").write_text(head + '161,56,"5ft\n3"\n')
    assert run("predict", sizes, tmp_path / "good.csv").exit_code == 0
    (tmp_path / "bad.csv").write_text(
        head + '161,56,"5ft 3\n185,90,tall\n186,91,tall\n'
    )
    result = run("predict", sizes, tmp_path / "bad.csv", "--out", tmp_path / "o.csv")
    assert result.exit_code == 1 and "a quote in row 2" in result.output
    assert not (tmp_path / "o.csv").exists()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_kept_column_has_one_type_for_all_files(sizes, tmp_path, suffix):
    parts = tmp_path / "parts"
    parts.mkdir()
    SIZES[:2].assign(note=None, n=np.int32(1)).to_parquet(parts / "a.parquet")
    SIZES[-2:].assign(note="x, y", n=np.int64(2**40)).to_parquet(parts / "b.parquet")
    out = tmp_path / f"o{suffix}"
    assert (
        run(
            "predict", sizes, parts, "--keep", "note", "--keep", "n", "--out", out
        ).exit_code
        == 0
    )
    read = pd.read_csv(out) if suffix == ".csv" else pd.read_parquet(out)
    assert read["note"].fillna("").tolist() == ["", "", "x, y", "x, y"]
    assert read["n"].tolist() == [1, 1, 2**40, 2**40]


@pytest.mark.parametrize("second", [1.5, "7", None])
def test_commands_that_join_rows_read_files_of_different_types(sizes, tmp_path, second):
    parts = tmp_path / "parts"
    parts.mkdir()
    frame = SIZES.assign(k=LABELS, weight=SIZES["weight"].round().astype(int))
    frame[:20].to_parquet(parts / "a.parquet")
    frame[20:].assign(weight=second).to_parquet(parts / "b.parquet")
    for words in (
        ["report", "--out", tmp_path / "r.html"],
        ["explain", "--row", 3, "--row", 30],
    ):
        result = run(words[0], sizes, parts, *words[1:])
        assert result.exit_code == 0, result.output


def test_a_kept_column_is_never_replaced_by_a_prediction(sizes, tmp_path):
    table = SIZES[:2].assign(label="own", **{"predicted label": "old"})
    table.to_csv(tmp_path / "t.csv", index=False)
    keep = ("--keep", "label", "--keep", "predicted label")
    done = run("predict", sizes, tmp_path / "t.csv", *keep, "--out", tmp_path / "o.csv")
    assert done.exit_code == 0, done.output
    read = pd.read_csv(tmp_path / "o.csv")
    assert read["label"][0] == "own" and read["predicted label"][0] == "old"
    assert read["predicted predicted label"].tolist() == ["small", "small"]


@pytest.mark.parametrize(
    "labels", [np.repeat([1.0, 2.0], 20), np.repeat([True, False], 20)]
)
def test_labels_that_other_tools_spell_otherwise_are_the_same(tmp_path, labels):
    """CSV has 1.0 and True, Parquet 1 and true."""
    frame = SIZES.assign(k=labels)
    model = fitted(tmp_path, frame)
    frame.to_parquet(tmp_path / "t.parquet")
    found = [
        run("evaluate", model, tmp_path / name, "--json").output
        for name in ("train.csv", "t.parquet")
    ]
    assert found[0] == found[1] and json.loads(found[0])["rows"] == 40


def test_settings_and_headers_of_other_editors(tmp_path):
    (tmp_path / "s.toml").write_bytes(b"\xef\xbb\xbfn_inducing = 5\n")
    fitted(
        tmp_path,
        SIZES.assign(k=np.repeat(["a", "b"], 20)),
        "--config",
        tmp_path / "s.toml",
    )
    (tmp_path / "q.csv").write_text('"Weight, dry, kg";"Height, m";y\n1;2;a\n2;1;b\n')
    assert open_table(tmp_path / "q.csv").names == ["Weight, dry, kg", "Height, m", "y"]
    SIZES.to_parquet(tmp_path / "UP.PARQUET")
    assert open_table(tmp_path / "UP.PARQUET").names == ["height", "weight"]


def test_a_rough_table_goes_from_the_file_to_a_report(tmp_path):
    """Dates, decimal commas, an identifier, Latin-1 and missing labels; and the model
    predicts the raw frame in Python.
    """
    days = pd.date_range("2020-01-01", periods=60, freq="5D").strftime("%d.%m.%Y")
    rows = [
        f"N{i}A1;{days[i]};{'größer' if i % 3 else 'kleiner'};{i % 7},5;{['a', 'b', ''][(i % 3 > 0) + (i % 11 == 0)]}"
        for i in range(60)
    ]
    table, model = tmp_path / "t.csv", tmp_path / "m.cavity"
    table.write_bytes("\n".join(["Kennung;Tag;Größe;Länge;k", *rows]).encode("latin-1"))
    words = (
        "fit",
        table,
        "--target",
        "k",
        "--out",
        model,
        "--max-epochs",
        5,
        "--effort",
        "fast",
    )
    refused = run(*words, "--strict")
    assert refused.exit_code == 1 and "UTF-8" in refused.output and not model.exists()
    said = " ".join(run(*words).output.split())
    words = "Kennung ignored|Tag date, 2020-01-01 to 2020-10-22|Länge number|1.250,5|Windows-1252|without a label"
    assert all(word in said for word in words.split("|")), said
    assert "without a label" in run("info", model).output
    assert run("report", model, table, "--out", tmp_path / "r.html").exit_code == 0
    assert "identifiers" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert run("evaluate", model, table).exit_code == 0
    assert run("predict", model, table, "--out", tmp_path / "p.csv").exit_code == 0
    frame = pd.read_csv(table, sep=";", encoding="latin-1", dtype=str).drop(columns="k")
    expected = cavity.load(model).predict_proba(frame)
    found = pd.read_csv(tmp_path / "p.csv")[["p_a", "p_b"]].to_numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_model_that_python_fitted_on_a_frame_predicts_raw_files(tmp_path):
    frame = SIZES.assign(
        c=np.tile(["x", "y", None, "z"], 10),
        day=pd.date_range("2020-01-01", periods=40),
    )
    clf = cavity.GPClassifier("sep", n_inducing=5, max_epochs=2, random_state=0)
    clf.fit(frame, LABELS).save(tmp_path / "m.cavity")
    frame.assign(new=1).to_csv(tmp_path / "t.csv", index=False)
    done = run(
        "predict",
        tmp_path / "m.cavity",
        tmp_path / "t.csv",
        "--out",
        tmp_path / "p.csv",
    )
    assert done.exit_code == 0 and "'new' (40 cells)" in done.output
    rows = tmp_path / "one.csv"
    frame.head(1).assign(new=1).to_csv(rows, index=False)
    single = run(
        "predict", tmp_path / "m.cavity", rows, "--out", tmp_path / "one-p.csv"
    )
    assert single.exit_code == 0 and "'new' (1 cell)" in single.output
    found = pd.read_csv(tmp_path / "p.csv")[["p_small", "p_tall"]].to_numpy()
    np.testing.assert_allclose(found, clf.predict_proba(frame), rtol=1e-9)
    one = asked(
        tmp_path / "m.cavity",
        [{"height": 160, "weight": 55, "c": "x", "day": "2020-01-03"}],
    )
    assert one["labels"] == ["small"]
