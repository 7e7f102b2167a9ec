"""Every line of docs/results/coverage.md runs, and its error is what the page says."""

import pytest

from support import load_script, slow, without_warnings

PAGE = load_script("tools/coverage_page.py")
ROWS = [row for rows in PAGE.list_rows().values() for row in rows]
BY_NAME = {f"{row.source} {row.what} {row.line}": row for row in ROWS}


def test_the_page_is_what_the_tool_writes():
    assert PAGE.PAGE.read_text(encoding="utf-8") == PAGE.make_page()


def test_no_row_is_empty_or_double():
    assert len(BY_NAME) == len(ROWS)
    for row in ROWS:
        assert row.source and row.what and row.line and row.judge
        assert "|" not in row.line


@pytest.mark.parametrize(
    "name", [slow(name) if row.slow else name for name, row in BY_NAME.items()]
)
def test_the_line_runs_with_the_error_of_the_page(name):
    row = BY_NAME[name]
    with without_warnings():
        assert row.measure() <= row.bound
