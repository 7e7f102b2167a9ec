"""The demo's problems are what they claim, and a small demo runs from end to end."""

import csv

import numpy as np
import pytest

from cavity.report import error, nll
from cavity.report.demo import Size, format_table, make_digits, make_toy, run

SMALL = {"toy": Size(60, 5, 3, 10), "digits": Size(200, 5, 2, 10)}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "new" / "folder"
    said: list[str] = []
    results = run(out, 3, SMALL, echo=said.append)
    return out, "\n".join(said), results


def test_the_toy_is_drawn_in_its_box_and_depends_on_the_seed_alone() -> None:
    one, same, other = make_toy(200, 1), make_toy(200, 1), make_toy(200, 2)
    assert one.X.shape == one.X_test.shape == (200, 2)
    assert (np.abs(np.vstack([one.X, one.X_test])) <= 2.5).all()
    assert set(one.y) <= {0, 1, 2}
    assert (one.X == same.X).all() and (one.y == same.y).all() and (one.X != other.X).any()


def test_the_toy_labels_belong_to_smooth_functions() -> None:
    problem = make_toy(1000, 0)
    nearest = ((problem.X_test[:, None] - problem.X[None]) ** 2).sum(-1).argmin(1)
    assert (problem.y[nearest] == problem.y_test).mean() > 0.9


def test_digits_are_split_without_overlap() -> None:
    problem = make_digits(1000, 0)
    assert len(problem.y) == 1000 and len(problem.y_test) == 797
    assert set(problem.y) == set(range(10))


def test_a_small_demo_writes_the_picture_and_the_table(small) -> None:
    out, _, results = small
    assert (out / "demo.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    with (out / "demo.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(r["data"], r["method"]) for r in rows] == [
        (name, method) for name in ("toy", "digits") for method in ("EP", "SEP", "logistic regression")
    ]
    for row, result in zip(rows, results, strict=True):
        y = result.problem.y_test
        assert float(row["NLL"]) == pytest.approx(nll(result.P, y), abs=5e-4)
        assert float(row["error"]) == pytest.approx(error(result.P, y), abs=5e-4)
        assert 0 <= float(row["ECE"]) <= 1 and float(row["fit seconds"]) >= 0


def test_a_small_demo_says_what_it_did(small) -> None:
    out, said, results = small
    assert format_table([r.row for r in results]) in said
    assert "5 inducing points per class, 3 epochs and 10 s on toy" in said
    assert "2 (limit)" in said and str(out / "demo.png") in said


def test_the_table_is_aligned() -> None:
    rows = [
        {"data": "toy", "method": "EP", "NLL": "0.1"},
        {"data": "digits", "method": "SEP", "NLL": "10.25"},
    ]
    assert format_table(rows).splitlines() == [
        "data    method    NLL",
        "---------------------",
        "toy     EP        0.1",
        "digits  SEP     10.25",
    ]
