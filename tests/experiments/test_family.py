"""docs/approximations.md: a row for every method, tests that exist, and the numbers of the
benchmark's rows.
"""

import re
from pathlib import Path

import pytest

from cavity.fitting.options.library import method_names
from support import load_script

ROOT = Path(__file__).parents[2]
PAGE, RESULTS, ERRATA = (
    (ROOT / "docs" / name).read_text(encoding="utf-8")
    for name in ("approximations.md", "results/methods.md", "results/misprints.md")
)
TESTS = {
    path: path.read_text(encoding="utf-8")
    for path in (ROOT / "tests").rglob("test_*.py")
}
ROWS = [
    [cell.strip() for cell in line.strip("| ").split("|")]
    for line in PAGE.splitlines()
    if line.startswith(('| `"', "| **"))
]


def of(estimator):
    """The rows of an estimator, up to the next one's."""
    names = [row[0] for row in ROWS]
    begin = names.index(f"**`{estimator}`**") + 1
    heads = [i for i, name in enumerate(names) if name.startswith("**") and i >= begin]
    return ROWS[begin : heads[0] if heads else None]


@pytest.mark.parametrize(
    ("estimator", "known"),
    [
        ("GPClassifier", set(method_names("classification")) - {"auto"}),
        ("GPRegressor", set(method_names("regression"))),
    ],
)
def test_every_method_has_a_row_and_every_row_is_full(estimator, known):
    rows = of(estimator)
    assert {re.match(r'`"(.+?)"`', row[0]).group(1) for row in rows} >= known
    assert all(len(row) == 7 and all(row) for row in rows)


@pytest.mark.parametrize("page", [PAGE, ERRATA], ids=["approximations", "errata"])
def test_every_test_that_a_page_names_exists(page):
    named = set(re.findall(r"`(test_\w+)`", page))
    assert len(named) > 10
    text = "\n".join(TESTS.values())
    functions = set(re.findall(r"^def (test_\w+)", text, re.M))
    assert named <= functions, named - functions
    files = {path.name for path in TESTS}
    assert set(re.findall(r"`(?:tests/\w+/)?(test_\w+\.py)", page)) <= files


@pytest.fixture(scope="module")
def benchmark():
    return load_script("benchmarks/regression.py")


def test_the_numbers_of_the_page_are_those_of_the_rows(benchmark):
    rows = benchmark.read(ROOT / "benchmarks" / "results" / "regression.csv")
    assert benchmark.table(rows) in RESULTS
    found = benchmark.group_curves(rows)
    sets = {data for data, _ in found}
    panels = set().union(*benchmark.PANELS.values())
    assert len(sets) == 3 and {method for _, method in found} == panels
    for curve in found.values():
        seconds = [row["seconds"] for row in curve]
        assert seconds == sorted(seconds)


def test_the_benchmark_runs(benchmark, tmp_path):
    """Its own methods, on few rows and for a moment; the picture is drawn."""
    methods = ("vi-means", "svi-natural")
    table = "GP draw, N=40"
    files = ["--csv", str(tmp_path / "r.csv"), "--png", str(tmp_path / "r.png")]
    size = ["--rows", "40", "--points", "5", "--seconds", "0.05"]
    benchmark.main([*size, "--tables", table, "--methods", *methods, *files])
    found = benchmark.group_curves(benchmark.read(tmp_path / "r.csv"))
    assert set(found) == {(table, method) for method in methods}
    assert (tmp_path / "r.png").stat().st_size > 5000
