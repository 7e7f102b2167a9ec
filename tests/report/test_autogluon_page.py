"""The table of docs/autogluon.md is that of the rows."""

from support import load_script


def test_the_table_is_made_of_the_rows():
    script = load_script("benchmarks/autogluon_ensemble.py")
    assert script.TABLE.search(script.PAGE.read_text(encoding="utf-8"))[0] == script.make_table()
