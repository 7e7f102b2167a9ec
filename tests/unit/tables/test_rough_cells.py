"""Dates, formatted numbers, identifiers, other encodings and missing labels are read,
and what was done is said.
"""

import datetime as dt
import json
import re
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cavity import BadInput, Preparation
from cavity.tables.columns.column_kinds import Date
from cavity.tables.columns.dates import parse_date
from cavity.tables.files.table_files import TableRows, open_table

EPOCH = dt.date(1970, 1, 1)


def learn(**columns):
    return Preparation().fit(columns)


FORMATS = {
    "%Y-%m-%d": "day", "%Y/%m/%d": "day", "%d.%m.%Y": "day", "%d/%m/%Y": "day", "%m/%d/%Y": "month", "%d %b %Y": "day",
    "%B %d, %Y": "day", "%a, %d-%B-%Y": "day", "%Y-%m-%dT00:00:00Z": "day", "%Y-%m-%d 00:00": "day",
}  # fmt: skip


@given(
    st.dates(dt.date(1900, 1, 1), dt.date(2199, 12, 31)),
    st.sampled_from(sorted(FORMATS)),
)
def test_dates_in_every_format_are_days_since_1970(day, form):
    assert parse_date(day.strftime(form), FORMATS[form]) == (day - EPOCH).days


@pytest.mark.parametrize(
    "text, hours",
    [
        ("08:15", 8.25),
        ("9:05 PM", 21 + 5 / 60),
        ("12:00 am", 0),
        ("1970-01-02 06:00:30", 30 + 1 / 120),
    ],
)
def test_times_are_parts_of_days(text, hours):
    assert parse_date(text, "day") == pytest.approx(hours / 24)


@pytest.mark.parametrize(
    "text",
    ["2020-13-01", "31.02.2020", "25:00", "1.2.3", "3/4", "99/99/2020", "may", ""],
)
def test_other_texts_are_not_dates(text):
    assert np.isnan(parse_date(text, "day"))


def test_zones_are_taken_to_one_clock():
    assert parse_date("2020-01-01T01:00:00+02:00", "day") == parse_date(
        "2019-12-31 23:00", "day"
    )


@pytest.mark.parametrize(
    "form", ["2020-01-0{} 12:00:00 UTC", "2020-01-0{}Z", "0{} Jan 2020, 1:30 pm +0100"]
)
def test_a_column_has_dates_in_every_form_that_is_parsed(form):
    table = {"when": [form.format(day) for day in range(1, 8)]}
    (column,) = learn(**table).columns_
    assert isinstance(column, Date)


def test_a_date_becomes_days_year_season_weekday():
    days = pd.date_range("2019-01-07", periods=800)  # a Monday
    prepare = learn(when=[str(d.date()) for d in days])
    assert prepare.names == tuple(
        f"when {part}"
        for part in (
            "days",
            "year",
            "season sin",
            "season cos",
            "weekday sin",
            "weekday cos",
        )
    )
    X = prepare.transform({"when": [str(d.date()) for d in days]})
    np.testing.assert_allclose(X[:, :2].mean(0), 0, atol=1e-9)
    np.testing.assert_allclose(X[:, :2].std(0), 1)
    year = np.sqrt(((X[0, 2:4] - X[365, 2:4]) ** 2).sum())
    half = np.sqrt(((X[0, 2:4] - X[182, 2:4]) ** 2).sum())
    assert year < 0.02 and half > 1.99
    np.testing.assert_allclose(X[0, 4:], X[7, 4:], atol=1e-12)
    np.testing.assert_allclose(X[0, 4:], [0, 1], atol=1e-12)
    assert dict(prepare.describe())["when"].startswith(
        "date, 2019-01-07 to 2021-03-16, as days, year"
    )


def test_typed_dates_are_the_dates_of_their_text():
    days = ["2019-03-01", None, "2021-07-02", "2020-01-05"]
    typed = pa.array([d and dt.date.fromisoformat(d) for d in days])
    text = learn(when=days)
    assert text.names[-1] == "when missing"
    for column in (
        typed,
        typed.cast(pa.timestamp("ns")),
        typed.cast(pa.timestamp("us", "UTC")),
    ):
        prepare = learn(when=column)
        np.testing.assert_allclose(
            prepare.transform({"when": days}), text.transform({"when": column})
        )
    frame = pd.DataFrame({"when": pd.to_datetime(days)})
    np.testing.assert_allclose(
        Preparation().fit_transform(frame), text.transform({"when": days})
    )
    assert (
        Preparation.from_json(json.loads(json.dumps(text.to_json()))).columns_
        == text.columns_
    )


def test_the_user_may_declare_dates_categories_but_not_numbers():
    days = pa.array([dt.date(2020, 1, 1), dt.date(2020, 1, 2), None])
    names = Preparation(kinds={"x": "category"}).fit({"x": days}).names
    assert names == ("x=2020-01-01", "x=2020-01-02", "x missing")
    with pytest.raises(BadInput, match="dates"):
        Preparation(kinds={"x": "number"}).fit({"x": days})


def test_the_whole_column_says_which_number_is_the_month():
    first, second = (
        learn(x=["03/04/2020", "25/04/2020"]),
        learn(x=["03/04/2020", "04/25/2020"]),
    )
    assert (first.columns_[0].order, second.columns_[0].order) == ("day", "month")
    with pytest.raises(BadInput, match=r"row 2.*'25/04/2020'"):
        second.transform({"x": ["01/02/2020", "25/04/2020"]})


def test_times_of_day_and_durations():
    assert learn(x=["08:15", "21:30"]).names == ("x clock sin", "x clock cos")
    assert (
        learn(x=pa.array([dt.timedelta(days=1), dt.timedelta(days=3)])).columns_[0].mean
        == 2
    )


NUMBERS = {
    "decimal commas": (["51,68", "2", "0,5"], [51.68, 2, 0.5], ","),
    "three decimals": (["1,288", "-0,344", "12,500"], [1.288, -0.344, 12.5], ","),
    "German thousands": (["1.250,5", "999", "2.000.000"], [1250.5, 999, 2e6], ","),
    "English thousands": (["1,250.5", "999", "2,000,000"], [1250.5, 999, 2e6], "."),
    "thousands that may be decimals": (["1,250", "2,500", "3"], [1250, 2500, 3], "."),
    "Swiss thousands": (["1'250.5", "1 000", "7"], [1250.5, 1000, 7], "."),
    "percent": (["12%", "3.5 %", "-4 %"], [12, 3.5, -4], "."),
    "money": (["$5", "€ 1,200", "-£3.20"], [5, 1200, -3.2], "."),
    "euros": (["5,10 €", "1.200,00 €", "+3 €"], [5.1, 1200, 3], ","),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_read_as_people_write_them(name):
    cells, values, style = NUMBERS[name]
    for batches in ([{"x": cells}], [{"x": [cell]} for cell in cells]):
        prepare = Preparation().fit_batches(batches)
        assert (
            prepare.columns_[0].style == style
            and "written as" in prepare.columns_[0].describe()
        )
        np.testing.assert_allclose(
            prepare.transform({"x": cells}), learn(x=values).transform({"x": values})
        )
        np.testing.assert_allclose(
            prepare.transform({"x": values}), prepare.transform({"x": cells})
        )
    notes = Counter()
    np.testing.assert_array_equal(
        prepare.transform({"x": ["3", "about 3"]}, notes)[1], [0.0]
    )
    assert (
        notes["column 'x' has texts that are not numbers; they are treated as missing"]
        == 1
    )


@pytest.mark.parametrize("first", ["1,250.5", "¥1,250.5", "-$1,250.5"])
def test_contradicting_formats_are_refused(first):
    with pytest.raises(BadInput, match=re.escape(first)):
        learn(x=[first, "1.250,5", "3,75"])


def test_a_number_beyond_float64_among_formatted_ones_is_refused():
    with pytest.raises(BadInput, match=r"'x'.*row 2"):
        learn(x=["1,250.5", "1e999", "2,000.5"])


def test_identifiers_free_text_and_nested_cells_are_set_aside():
    rows = 60
    prepare = learn(
        id=[f"N{i}A" for i in range(rows)],
        few=[f"u{i}" for i in range(30)] * 2,
        cells=[[1]] * rows,
        x=list(range(rows)),
    )
    assert prepare.inputs == ("few", "x")
    ignored = {c.name: c.why for c in prepare.ignored_ if c.informs}
    assert (
        ignored["id"]
        == "60 different texts in 60 rows: names, identifiers or free text"
    )
    assert "list" in ignored["cells"]
    assert learn(id=[f"p{i}" for i in range(21)], x=list(range(21))).inputs == ("x",)
    with pytest.raises(BadInput, match="different texts"):
        Preparation(kinds={"id": "category"}).fit(
            {"id": [f"N{i}A" for i in range(rows)]}
        )


@pytest.mark.parametrize(
    "encoding", ["latin-1", "cp1252", "utf-16", "utf-16-be", "utf-8-sig"]
)
def test_files_in_other_encodings_are_read(tmp_path, encoding):
    odd = "\x81" if encoding == "latin-1" else "€"
    text = f"größe;sort;y\n1,5;é;a\n2,5;{odd};b\n"
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    (tmp_path / "t.csv").write_bytes(mark + text.encode(encoding))
    table = open_table(tmp_path / "t.csv")
    (chunk,) = table.chunks()
    cells = chunk.table.to_pydict()
    assert list(cells) == ["größe", "sort", "y"] and cells["sort"] == ["é", odd]
    assert bool(table.notes) == (encoding != "utf-8-sig")
    if encoding != "utf-8-sig":
        with pytest.raises(BadInput, match="UTF-8"):
            list(open_table(tmp_path / "t.csv", strict=True).chunks())


def test_rows_without_a_label_are_counted_and_left_out_of_a_source(tmp_path):
    (tmp_path / "t.csv").write_text(
        "x,when,y\n1,2020-01-01,a\n2,2020-02-01,NA\n3,,b\n4,2020-03-05,\n"
    )
    table = open_table(tmp_path / "t.csv")
    prepare = Preparation("y").fit_batches(table.chunks())
    assert prepare.target_.missing == 2
    (chunk,) = table.chunks()
    labelled = prepare.find_labelled(chunk)
    assert labelled.tolist() == [True, False, True, False]
    (rows,) = TableRows(table, prepare, None).pieces(10)
    np.testing.assert_allclose(rows.X, prepare.encode(chunk)[labelled])
    assert rows.y.tolist() == ["a", "b"] and rows.index.tolist() == [0, 1]
    with pytest.raises(BadInput, match=r"'y'.*row 2"):
        prepare.labels(chunk)
    with pytest.raises(BadInput, match=r"'y'.*row 2"):
        Preparation("y", strict=True).fit_batches(table.chunks())


def test_a_cell_longer_than_any_table_needs_is_refused_in_our_words(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("a,b\n1,2\n3," + "x" * (10 << 20) + "\n")
    with pytest.raises(BadInput, match=r"long\.csv"):
        list(open_table(path).chunks())


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "1e400"])
def test_infinity_is_an_error_in_training_and_in_new_rows(cell):
    cells = [str(i) for i in range(5)]
    with pytest.raises(BadInput, match=r"'a'.*row 4"):
        learn(a=[*cells[:3], cell, *cells[4:]])

    prepare = learn(a=cells)
    with pytest.raises(BadInput, match=r"'a'.*row 2"):
        prepare.transform({"a": ["1", cell]})
    assert np.isfinite(prepare.transform({"a": ["1", "information"]})).all()


def test_inf_among_texts_is_a_category():
    prepare = learn(a=["inf", "cav", "art", "inf"])
    assert prepare.names == ("a=art", "a=cav", "a=inf")


def test_a_stream_of_arrow_is_a_table(tmp_path):
    table = pa.table({"a": [1.0, 2.0, 3.0]})
    path = tmp_path / "rows.ipc"
    with (
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as to,
    ):
        to.write_table(table)
    (chunk,) = open_table(path).chunks()
    assert chunk.table.equals(table)
