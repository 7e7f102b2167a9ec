"""Mixed columns become numbers: the same ones however the rows come, and a column that
cannot is named with what to do.
"""

import functools
import gzip
import json
from collections import Counter

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cavity import BadFile, BadInput, BadOption, CavityError, Preparation
from cavity.tables.columns.inspection import MOST_COLUMNS
from cavity.tables.files.table_files import TableRows, open_table

HEIGHT = [1.5, None, 2.5, 4.0, 3.0, 2.0]
COLOUR = ["red", "blue", None, "red", "green", "blue"]
FRAME = {
    "height": HEIGHT,
    "count": [1, 2, 3, 4, 5, 6],
    "open": [True, False, True, True, False, False],
    "colour": COLOUR,
    "same": [7, 7, 7, 7, 7, 7],
    "nothing": [None] * 6,
    "kind": ["a", "b", "a", "b", "a", "b"],
}
COLOURS = ("colour=blue", "colour=green", "colour=red", "colour missing")
NAMES = ("height", "height missing", "count", "open", *COLOURS)


@pytest.fixture
def learnt():
    return Preparation(target="kind").fit(FRAME)


def csv(path, frame=FRAME, separator=","):
    cells = [["" if v is None else str(v) for v in column] for column in frame.values()]
    lines = [
        separator.join(frame),
        *(separator.join(row) for row in zip(*cells, strict=True)),
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_numbers_are_standardised_categories_one_hot_and_what_is_missing_is_said(
    learnt,
):
    X = learnt.transform(FRAME)
    assert learnt.names == NAMES and X.shape == (6, 8)
    height = np.array([np.nan if h is None else h for h in HEIGHT])
    np.testing.assert_allclose(
        X[:, 0],
        np.nan_to_num((height - np.nanmean(height)) / np.nanstd(height)),
        atol=1e-15,
    )
    np.testing.assert_array_equal(X[:, 1], np.isnan(height))
    np.testing.assert_allclose(X[:, 2].mean(), 0, atol=1e-15)
    np.testing.assert_allclose(X[:, 2].std(), 1)
    expected = np.array(
        [[c == level for level in ("blue", "green", "red", None)] for c in COLOUR]
    )
    np.testing.assert_array_equal(X[:, 4:], expected)
    assert {c.name: c.why for c in learnt.ignored_} == {
        "same": "always 7",
        "nothing": "no values",
    }
    assert learnt.labels(FRAME).tolist() == FRAME["kind"]


@pytest.mark.parametrize("cut", [1, 2, 4])
def test_one_pass_over_pieces_is_one_over_the_whole(learnt, cut):
    table = pa.table(FRAME)
    pieces = [table.slice(i, cut) for i in range(0, 6, cut)]
    again = Preparation(target="kind").fit_batches(pieces)
    assert again.names == learnt.names
    np.testing.assert_allclose(
        again.transform(table), learnt.transform(table), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_array_equal(
        np.concatenate([learnt.transform(p) for p in pieces]), learnt.transform(table)
    )


@pytest.mark.parametrize(
    "kind",
    [
        "csv",
        "semicolons",
        "tabs",
        "gz",
        "parquet",
        "arrow",
        "folder",
        "pandas",
        "polars",
    ],
)
def test_every_container_gives_the_same_numbers(learnt, tmp_path, kind):
    table = pa.table({k: v for k, v in FRAME.items() if k != "nothing"})
    if kind in ("csv", "semicolons", "tabs", "gz"):
        separator = {"semicolons": ";", "tabs": "\t"}.get(kind, ",")
        path = csv(
            tmp_path / "t.csv",
            FRAME | {"open": [int(v) for v in FRAME["open"]]},
            separator,
        )
        if kind == "gz":
            path = tmp_path / "t.csv.gz"
            path.write_bytes(gzip.compress((tmp_path / "t.csv").read_bytes()))
    elif kind in ("parquet", "folder"):
        path = tmp_path / "t.parquet" if kind == "parquet" else tmp_path
        pq.write_table(table, tmp_path / "t.parquet", row_group_size=4)
    elif kind == "arrow":
        path = tmp_path / "t.arrow"
        feather.write_feather(table, str(path))
    else:
        frame = pd.DataFrame(FRAME) if kind == "pandas" else pl.DataFrame(FRAME)
        again = Preparation(target="kind").fit(frame)
        np.testing.assert_array_equal(again.transform(frame), learnt.transform(FRAME))
        return
    again = Preparation(target="kind").fit_batches(open_table(path).chunks())
    order = [again.names.index(name) for name in learnt.names]
    X = np.concatenate([again.transform(chunk) for chunk in open_table(path).chunks()])
    np.testing.assert_allclose(
        X[:, order], learnt.transform(FRAME), rtol=1e-12, atol=1e-12
    )


def test_json_holds_everything(learnt):
    again = Preparation.from_json(json.loads(json.dumps(learnt.to_json())))
    np.testing.assert_array_equal(again.transform(FRAME), learnt.transform(FRAME))
    assert again.to_json() == learnt.to_json() and again.describe() == learnt.describe()


def test_unseen_categories_are_ignored_and_counted(learnt):
    new = FRAME | {"colour": ["red", "mauve", None, "mauve", "red", "red"]}
    notes = Counter()
    X = learnt.transform(new, notes)
    np.testing.assert_array_equal(X[1, 4:], 0)
    assert list(notes.values()) == [2] and "'colour' has categories" in next(
        iter(notes)
    )


def test_newly_missing_cells_are_the_mean_and_other_columns_do_not_matter(learnt):
    notes = Counter()
    X = learnt.transform(FRAME | {"count": [1, None, 3, 4, 5, 6]}, notes)
    assert X[1, 2] == 0 and list(notes.values()) == [1]
    new = {"more": [1] * 6, **dict(reversed(FRAME.items()))}
    np.testing.assert_array_equal(learnt.transform(new), learnt.transform(FRAME))
    with pytest.raises(BadInput, match="'heights'"):
        learnt.transform(
            {("heights" if k == "height" else k): v for k, v in FRAME.items()}
        )


def test_the_user_has_the_last_word_on_what_a_column_is():
    zip_code = {
        "zip": ["1001", "1002", "1001", "1003"],
        "x": [1, 2, 3, 4],
        "y": [0, 1, 0, 1],
    }
    assert Preparation(target="y").fit(zip_code).names == ("zip", "x")
    chosen = Preparation(target="y", kinds={"zip": "category"}, ignore=["x"]).fit(
        zip_code
    )
    assert chosen.names == ("zip=1001", "zip=1002", "zip=1003")
    whole = Preparation(target="y", kinds={"zip": "category"}, ignore=["x"]).fit(
        zip_code | {"zip": [1001, 1002, 1001, 1003]}
    )
    np.testing.assert_array_equal(whole.transform(zip_code), chosen.transform(zip_code))
    with pytest.raises(BadOption, match="'text'"):
        Preparation(kinds={"zip": "text"}).fit(zip_code)


LABELS = {
    "whole numbers": ([3, 10, 3], [3, 10, 3]),
    "text of whole numbers": (["3", "10", "3"], [3, 10, 3]),
    "floats that are whole": ([3.0, 10.0, 3.0], [3, 10, 3]),
    "text": (["no", "yes", "no"], ["no", "yes", "no"]),
    "leading zeros": (["007", "12", "007"], ["007", "12", "007"]),
    "decimals that are whole": (
        ["1.0", "2.0", "1.0"],
        [1, 2, 1],
    ),  # as a CSV has floats that are whole
    "truth values": ([True, False, True], ["true", "false", "true"]),
}


@pytest.mark.parametrize("name", LABELS)
def test_labels_are_whole_numbers_or_text(name):
    given_labels, expected = LABELS[name]
    table = {"x": [1, 2, 3], "y": given_labels}
    assert Preparation(target="y").fit(table).labels(table).tolist() == expected


REFUSED = {  # the columns, with y = 0, 1 if there is none, and the words that matter
    "dates": ({"when": pa.array([1, 2], pa.date32())}, "'when' has dates"),
    "dates as text": ({"when": ["2020-01-31", "2021-02-03"]}, "dates"),
    "dates with points": ({"when": ["31.01.2020", "03.02.21"]}, "dates"),
    "times": ({"when": pa.array([1, 2], pa.timestamp("s"))}, "dates"),
    "durations": ({"when": pa.array([1, 2], pa.duration("s"))}, "dates"),
    "dates in words": ({"x": ["1 Jan 2020", "Mon, 03-March-2020"]}, "dates"),
    "American dates": ({"x": ["Jan 1, 2020", "December 24, 2021"]}, "dates"),
    "dates with slashes": ({"x": ["2020/01/31", "2020.2.1 12:00"]}, "dates"),
    "times of day": ({"x": ["08:15", "9:05 PM"]}, "dates"),
    "lists": ({"x": [[1], [2]]}, "'x'.*list"),
    "infinity": ({"x": [1.0, float("inf")]}, "infinite.*row 2"),
    "numbers beyond float64": ({"x": ["1", "1e999"]}, "infinite"),
    "one class": ({"x": [1, 2], "y": ["a", "a"]}, "one class"),
    "no label": ({"x": [1, 2], "y": ["a", None]}, "'y'.*row 2"),
    "a quantity as target": ({"x": [1, 2], "y": [0.5, 1.25]}, "0.5"),
    "a quantity in text": ({"x": [1, 2], "y": ["0.5", "1.25"]}, "0.5"),
    "nothing to learn from": ({"x": [1, 1]}, "no features"),
    "no target": ({"x": [1, 2], "z": [1, 2]}, "'y'.*'x', 'z'"),
    "only the target": ({"y": [0, 1]}, "only column"),
    "no rows": ({"x": pa.array([], "int64"), "y": pa.array([], "int64")}, "no rows"),
    "no table": ([1, 2, 3], "table"),
    "names": (
        {"x": [f"person {i}" for i in range(60)], "y": [0, 1] * 30},
        "60 different texts",
    ),
    "a slip": (
        {"x": [*(str(i / 7) for i in range(99)), "12,5"], "y": [0, 1] * 50},
        "'12,5' in row 100",
    ),
    "a few slips of few": (
        {"x": ["1", "2", "3", "1,5"] * 5, "y": [0, 1] * 10},
        "'1,5' in row 4",
    ),
    "decimal commas": ({"x": ["1,5", "2"] * 2, "y": [0, 1] * 2}, "'1,5'.*row 1"),
    "thousands": (
        {"x": ["1,250.75", "999", "1'000", "2.000.000,5"], "y": [0, 1] * 2},
        "'1,250.75'",
    ),
    "percent": ({"x": ["12%", "3.5 %"]}, "'12%'"),
    "money": ({"x": ["$5", "1,200 €"]}, r"'\$5'"),
}


@pytest.mark.parametrize(
    "cells", ["1.2.3 1.10.0", "10-19 20-29", "3/4 1/2", "may june", "A4 12a", "5kg 7kg"]
)
def test_texts_with_digits_are_categories(cells):
    learnt = Preparation(target="y").fit({"x": cells.split() * 2, "y": [0, 1] * 2})
    assert learnt.columns_[0].levels == tuple(sorted(cells.split()))


@pytest.mark.parametrize(
    "name, cells",
    [
        ("id", [0, 1, 2, 3]),
        ("Unnamed: 0", ["5", "6", "7", "8"]),
        ("Row Number", [1.0, 2, 3, 4]),
    ],
)
def test_a_column_that_counts_the_rows_and_says_so_is_left_out(name, cells):
    table = pa.table({name: cells, "x": [1.5, 0.5, 2.5, 1.0], "y": [0, 1] * 2})
    pieces = [table.slice(0, 1), table.slice(1, 3)]
    learnt = Preparation(target="y").fit_batches(pieces)
    assert learnt.names == ("x",) and learnt.ignored_[0][:2] == (name, "row number")
    assert Preparation(target="y", kinds={name: "number"}).fit_batches(
        pieces
    ).names == (name, "x")
    assert Preparation(target="y").fit(
        table.rename_columns(["step", "x", "y"])
    ).names == (
        "step",
        "x",
    )
    shuffled = table.take([0, 2, 1, 3])
    for rows in ([shuffled], [shuffled.slice(0, 1), shuffled.slice(1, 3)]):
        learnt = Preparation(target="y").fit_batches(rows)
        assert learnt.names == ("x",) and learnt.ignored_[0][:2] == (name, "row number")


def test_many_names_say_that_a_column_counts_the_rows():
    names = "level_0 rownames row.names ...1 PassengerId customerID user-id idx obs Record No. S.No sample_number #"
    names = ["Unnamed: 0.1", "Sample ID", *names.split()]
    number = np.random.default_rng(0).permutation(60)
    columns = {"x": np.arange(60) % 7, "y": np.arange(60) % 2}
    for name in names:
        assert Preparation(target="y").fit({name: number, **columns}).names == ("x",), (
            name
        )
    for name in ("paid", "grid", "PAID", "humid", "step", "rank", "day", "sample"):
        assert name in Preparation(target="y").fit({name: number, **columns}).names


@pytest.mark.parametrize(
    "cells",
    [
        np.r_[0, np.arange(59)],  # twice the same
        np.arange(60)[::-1] / 2,
        np.arange(60)[::-1] - 3,  # below 0
        np.random.default_rng(0).choice(
            100_000, 60, replace=False
        ),  # too far apart to be row numbers
    ],
)
def test_other_numbers_are_features_whatever_their_name(cells):
    table = {"id": cells, "x": np.arange(60) % 7, "y": np.arange(60) % 2}
    assert Preparation(target="y").fit(table).names[0] == "id"


def test_truth_values_are_the_categories_that_a_text_file_spelt(tmp_path):
    """pandas writes True, Arrow says true; JSON and Parquet have neither."""
    (tmp_path / "t.csv").write_text("b,y\nTrue,0\nFalse,1\n")
    learnt = Preparation(target="y").fit_batches(
        open_table(tmp_path / "t.csv").chunks()
    )
    assert learnt.names == ("b=False", "b=True")
    np.testing.assert_array_equal(
        learnt.transform({"b": [True, False, None]}), [[0, 1], [1, 0], [0, 0]]
    )


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_used_is_named_with_what_to_do(name):
    columns, words = REFUSED[name]
    whole = isinstance(columns, list) or "y" in columns or name == "no target"
    table = columns if whole else {**columns, "y": [0, 1]}
    with pytest.raises(BadInput, match=words):
        Preparation(target="y", strict=True).fit(table)


def test_a_code_in_a_column_of_numbers_is_missing_or_named_with_its_row_if_strict():
    table, blank = ({"count": ["1", "2", cell, "4"]} for cell in ("three", None))
    notes = Counter()
    found = Preparation().fit({"count": [1.0, 2, 3, 7]}).transform(table, notes)
    np.testing.assert_array_equal(
        found, Preparation().fit({"count": [1.0, 2, 3, 7]}).transform(blank)
    )
    assert any("not numbers" in note and count == 1 for note, count in notes.items())
    strict = Preparation(strict=True).fit({"count": [1.0, 2, 3, 7]})
    for prepare in (strict, Preparation.from_json(strict.to_json())):
        with pytest.raises(BadInput, match=r"'count'.*row 3.*'three'"):
            prepare.transform(table)


def test_groups_of_version_0_3_are_refused_with_what_to_do(learnt):
    stored = learnt.to_json()
    stored["columns"][0] |= {
        "values": [1.0, 2.0],
        "shares": [[0.1, -0.1]] * 2,
        "classes": ["a", "b"],
    }
    with pytest.raises(BadFile, match="'height'"):
        Preparation.from_json(stored)


@pytest.mark.parametrize(
    "change", [dict(columns=[]), dict(columns=None), dict(target=3), dict(left_out=[1])]
)
def test_damaged_json_is_refused(learnt, change):
    with pytest.raises((BadFile, BadOption)):
        Preparation.from_json(learnt.to_json() | change)


def test_prepared_files_are_a_source(tmp_path, learnt):
    table = open_table(
        csv(tmp_path / "t.csv", FRAME | {"open": [int(v) for v in FRAME["open"]]})
    )
    source = TableRows(table, learnt, None)
    pieces = list(source.pieces(4))
    assert source.names == learnt.names and [p.index.tolist() for p in pieces] == [
        [0, 1, 2, 3],
        [4, 5],
    ]
    np.testing.assert_allclose(
        np.concatenate([p.X for p in pieces]), learnt.transform(FRAME), atol=1e-12
    )


# ---------------------------------------------------------------- files
def test_csv_is_read_as_people_write_it(tmp_path):
    (tmp_path / "t.csv").write_text(",x,y\n0,1.5,a\n1,2.5,b\n")
    learnt = Preparation(target="y").fit_batches(
        open_table(tmp_path / "t.csv").chunks()
    )
    assert learnt.names == ("x",)
    (tmp_path / "t.csv").write_text('x,y\n"a,\nb",0\nc,1\n"a,\nb",1\n')
    learnt = Preparation(target="y").fit_batches(
        open_table(tmp_path / "t.csv").chunks()
    )
    assert learnt.columns_[0].levels == ("a,\nb", "c")
    (tmp_path / "t.csv").write_text('"a,\nb",y\n1,0\n2,1\n')
    assert Preparation(target="y").fit_batches(
        open_table(tmp_path / "t.csv").chunks()
    ).names == ("a,\nb",)
    (tmp_path / "t.csv").write_text('screen 5",y\n1,0\n2,1\n')
    assert open_table(tmp_path / "t.csv").names == ['screen 5"', "y"]


HEADERS = {
    "a byte-order mark": b'\xef\xbb\xbf"x",y\n1,a\n2,b\n',
    "empty lines before": b"\r\n\nx,y\n1,a\n\n2,b\n\n",
    "lines that end in CR": b"x,y\r1,a\r2,b\r",
    "lines that end in CR LF": b"x,y\r\n1,a\r\n2,b\r\n",
    "no line end at the end": b"x,y\n1,a\n2,b",
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers_of_all_sorts(name, tmp_path):
    (tmp_path / "t.csv").write_bytes(HEADERS[name])
    learnt = Preparation(target="y").fit_batches(
        open_table(tmp_path / "t.csv").chunks()
    )
    assert learnt.names == ("x",) and learnt.columns_[0].mean == 1.5


BAD_FILES = {  # name, content, the word that matters
    "missing": ("none.csv", None, "exist"),
    "empty.csv": ("t.csv", b"", "empty"),
    "empty.parquet": ("t.parquet", b"", "empty"),
    "only a header": ("t.csv", b"x,y\n", "no rows"),
    "ragged": ("t.csv", b"x,y\n1,2\n3\n", "2 columns, got 1"),
    "latin-1": ("t.csv", "x,y\né,1\n".encode("latin-1"), "UTF-8"),
    "a latin-1 header": ("t.csv", "é,y\n1,1\n".encode("latin-1"), "UTF-8"),
    "UTF-16": ("t.csv", "x,y\n1,2\n".encode("utf-16"), "UTF-8"),
    "a header of a million columns": ("t.csv", b"x," * 10**6 + b"y\n", "1,000,001"),
    "a column twice": ("t.csv", b"x,x,y\n1,2,3\n", "'x'"),
    "no parquet": ("t.parquet", b"PAR1" * 5, "read"),
    "no arrow": ("t.arrow", b"ARROW1" * 5, "read"),
    "of no kind": ("t.docx", b"PK", "file type"),
    "of NumPy": ("t.npz", b"PK", "file type"),
    "a spreadsheet": ("t.xlsx", b"PK", "spreadsheet"),
    "a spreadsheet by another name": ("t.csv", b"PK\3\4\0\0\0", "not a text file"),
    "a line before the header": (
        "t.csv",
        b"# a tool\nx,y\n1,2\n",
        "header must be the first line",
    ),
    "an open quote in the header": ("t.csv", b'a;"b;y\n1;2;3\n', "quote"),
    "no gzip": ("t.csv.gz", b"x,y\n", "read"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_named_with_its_trouble(name, tmp_path):
    file, content, words = BAD_FILES[name]
    if content is not None:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(BadInput, match=words):
        Preparation(target="y").fit_batches(
            open_table(tmp_path / file, strict=True).chunks()
        )


def test_a_column_has_the_type_that_all_files_have_in_common(tmp_path):
    files = {
        "k": ([1, 2], ["x", "y"]),
        "n": ([1, 2], [0.5, 2.5]),
        "d": (["u", "v"], pa.array(["v", "w"]).dictionary_encode()),
    }
    for i in range(2):
        table = pa.table(
            {name: columns[i] for name, columns in files.items()} | {"y": ["a", "b"]}
        )
        pq.write_table(
            table if i else table.append_column("first", pa.array([True, False])),
            tmp_path / f"{i}.parquet",
        )
    prepare = Preparation(target="y").fit_batches(open_table(tmp_path).chunks())
    assert (
        prepare.columns_[0].levels == ("1", "2", "x", "y")
        and prepare.columns_[1].low == 0.5
    )
    assert (
        prepare.columns_[2].levels == ("u", "v", "w")
        and prepare.names[-1] == "first missing"
    )


# ---------------------------------------------------------------- fuzzing
@functools.cache
def contents(folder):
    """A sound file of each kind."""
    folder.mkdir(exist_ok=True)
    small = {k: FRAME[k] * 4 for k in ("height", "count", "colour", "kind")}
    csv(folder / "t.csv", small)
    pq.write_table(pa.table(small), folder / "t.parquet", row_group_size=10)
    feather.write_feather(
        pa.table(small), str(folder / "t.arrow"), compression="uncompressed"
    )
    return {
        name: (folder / name).read_bytes() for name in ("t.csv", "t.parquet", "t.arrow")
    }


@st.composite
def accidents(draw):
    """Where bytes are cut off, flipped, or replaced: shares of the file's length."""
    share = st.floats(0, 1, exclude_max=True)
    cut = draw(st.none() | share)
    flips = draw(
        st.lists(
            st.tuples(share | st.floats(0.9, 1, exclude_max=True), st.integers(0, 7)),
            max_size=4,
        )
    )
    splice = draw(st.none() | st.tuples(share, st.binary(max_size=20)))
    return draw(st.sampled_from(["t.csv", "t.parquet", "t.arrow"])), cut, flips, splice


def damage(content, cut, flips, splice):
    changed = bytearray(content)
    for place, bit in flips:
        changed[int(place * len(changed))] ^= 1 << bit
    if splice is not None:
        place = int(splice[0] * len(changed))
        changed[place : place + len(splice[1])] = splice[1]
    return bytes(changed if cut is None else changed[: int(cut * len(changed))])


def survives(accident, folder):
    """Either the file is read after all, or our own error says that it cannot be."""
    sound = contents(folder)
    name, *what = accident
    (folder / name).write_bytes(damage(sound[name], *what))
    try:
        table = open_table(folder / name)
        learnt = Preparation(target="kind").fit_batches(table.chunks())
        for chunk in table.chunks():
            learnt.transform(chunk)
            learnt.labels(chunk)
    except CavityError:
        pass


QUIET = dict(database=None, suppress_health_check=list(HealthCheck))


@settings(**QUIET)
@given(accident=accidents())
def test_damaged_tables_raise_our_own_error_or_none(accident, tmp_path_factory):
    survives(accident, tmp_path_factory.getbasetemp() / "tables")


@pytest.mark.slow
def test_a_table_with_too_many_columns_is_refused_before_they_are_inspected():
    names = [f"x{i}" for i in range(MOST_COLUMNS + 1)]
    table = {name: [1.0, 2.0] for name in names}
    with pytest.raises(BadInput, match=str(MOST_COLUMNS + 1)):
        Preparation().fit(table)
    *inputs, last = names
    assert Preparation(ignore=[last]).fit(table).inputs == tuple(inputs)
    labelled = table | {last: ["p", "q"]}
    assert Preparation(target=last).fit(labelled).inputs == tuple(inputs)
