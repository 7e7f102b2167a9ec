"""Whether equal rows are told from copies, and near copies from independent rows.

Three tables: generated cells and copies with the share that is judged wrong; the excess
of gaps between neighbours (`near_copies.find_excess`) of independent rows and of 60
groups; the tables of CAVITY_DATA that would raise the warning of near copies. The
numbers are those of decision 70.

    python benchmarks/repeated_rows.py [--seeds 6]
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from cavity.tables.labelled import read_table
from cavity.tables.near_copies import ERRORS, find_excess
from cavity.tables.repeats import has_cells
from cavity.tables.table import GivenRows, Table
from experiments import table_data

Rng = np.random.Generator
Draw = Callable[[Rng], tuple[Any, Any]]
COLUMNS = (2, 3, 5, 10, 20)
NOISE = (0.05, 0.1, 0.2, 1 / 3)  # shares of the spread between groups
SIZES = (2, 4, 8, 20)
GROUPS = 60
MOST_ROWS = 12_000  # of a real table


def sign(X: Any, noise: float, rng: Rng) -> Any:
    """Return labels by the first and the last column."""
    f = X[:, 0] - 0.6 * X[:, -1]
    return (f - f.mean() + noise * rng.logistic(size=len(X)) > 0).astype(int)


def draw_cells(sizes: tuple[int, ...], n: int, noise: float, rng: Rng) -> Any:
    X = np.column_stack([rng.integers(size, size=n) for size in sizes])
    return X.astype(float), sign(X, noise, rng)


def draw_votes(rng: Rng) -> Any:
    party = rng.integers(2, size=300)
    loyal = rng.random((300, 16)) < rng.uniform(0.85, 0.99, 16)
    return (loyal == party[:, None]).astype(float), party


def draw_grades(rng: Rng) -> Any:
    ill = rng.random(500) < 0.35
    low = 1 + (rng.random((500, 9)) < 0.2) * rng.integers(1, 3, (500, 9))
    X = np.where(ill[:, None], rng.integers(1, 11, (500, 9)), low)
    return X.astype(float), ill.astype(int)


def draw_factor(columns: int, spread: float, decimals: int, rng: Rng) -> Any:
    X = rng.normal(size=(600, 1)) + spread * rng.normal(size=(600, columns))
    X = X.round(decimals)
    return X, sign(X, 0.0, rng)


def draw_levels(rng: Rng) -> Any:
    codes = [rng.integers(size, size=400) for size in (6, 5, 4, 3)]
    X = np.hstack([np.eye(code.max() + 1)[code] for code in codes])
    return X, sign(np.column_stack(codes), 0.0, rng)


CELLS: dict[str, Draw] = {
    "6 × 6 × 3": lambda rng: draw_cells((6, 6, 3), 400, 0.7, rng),
    "6 × 8 × 8, no noise": lambda rng: draw_cells((6, 8, 8), 400, 0.0, rng),
    "120 rows of 3 × 4 × 4 × 4": lambda rng: draw_cells((3, 4, 4, 4), 120, 0.7, rng),
    "votes": draw_votes,
    "grades": draw_grades,
    "one-hot": draw_levels,
    "4 whole numbers, one factor": lambda rng: draw_factor(4, 0.5, 0, rng),
    "3 decimals, one factor": lambda rng: draw_factor(3, 0.3, 1, rng),
    "2 decimals, one factor": lambda rng: draw_factor(2, 0.3, 1, rng),
}


def draw_numbers(n: int, columns: int, unit: float, noise: float, rng: Rng) -> Any:
    X = rng.normal(size=(n, columns))
    if unit > 0:
        X = np.round(X / unit)
    return X, sign(X, noise, rng)


COPIED: dict[str, Draw] = {
    "70 rows of 3 numbers": lambda rng: draw_numbers(70, 3, 0.0, 0.7, rng),
    "one number": lambda rng: draw_numbers(70, 1, 0.0, 0.7, rng),
    "5 numbers, no noise": lambda rng: draw_numbers(200, 5, 0.0, 0.0, rng),
    "5 whole numbers": lambda rng: draw_numbers(300, 5, 0.5, 0.7, rng),
    "20 flags": lambda rng: draw_cells((2,) * 20, 200, 0.7, rng),
}
TIMES: dict[str, Callable[[Any, Rng], Any]] = {
    "1 to 3 times": lambda y, rng: rng.integers(1, 4, len(y)),
    "a tenth twice": lambda y, rng: 1 + (rng.random(len(y)) < 0.1),
    "a class 5 times": lambda y, rng: np.where(y == 1, 5, 1),
}


def make_table(X: Any, y: Any) -> Table:
    return Table(X, y, np.ones(len(y)), int(y.max()) + 1)


def judge_copies(draw: Draw, times: Callable[[Any, Rng], Any], rng: Rng) -> bool:
    X, y = draw(rng)
    often = times(y, rng)
    return has_cells(make_table(X.repeat(often, 0), y.repeat(often)))


def print_cells(seeds: int) -> None:
    print("| cells | taken for copies |\n|---|---|")
    for name, draw in CELLS.items():
        tables = [make_table(*draw(np.random.default_rng(s))) for s in range(seeds)]
        wrong = sum(not has_cells(table) for table in tables)
        print(f"| {name} | {wrong} of {seeds} |")
    print("\n| copies | taken for cells |\n|---|---|")
    for name, draw in COPIED.items():
        for often, times in TIMES.items():
            rngs = map(np.random.default_rng, range(seeds))
            wrong = sum(judge_copies(draw, times, rng) for rng in rngs)
            print(f"| {name}, {often} | {wrong} of {seeds} |")


def draw_clusters(count: int, n: int, D: int, rng: Rng) -> Any:
    centre = rng.normal(size=(count, D))
    noise = rng.choice([0.1, 0.2, 1 / 3])
    return centre[rng.integers(count, size=n)] + noise * rng.normal(size=(n, D))


INDEPENDENT: dict[str, Callable[[int, int, Rng], Any]] = {
    "normal": lambda n, D, rng: rng.normal(size=(n, D)),
    "uniform": lambda n, D, rng: rng.random((n, D)),
    "heavy tails": lambda n, D, rng: rng.standard_t(2, size=(n, D)),
    "lognormal": lambda n, D, rng: np.exp(1.5 * rng.normal(size=(n, D))),
    "whole numbers": lambda n, D, rng: np.round(2 * rng.normal(size=(n, D))),
    "two factors": lambda n, D, rng: (
        rng.normal(size=(n, 2)) @ rng.normal(size=(2, D))
        + 0.1 * rng.normal(size=(n, D))
    ),
    "3 clusters": lambda n, D, rng: draw_clusters(3, n, D, rng),
    "10 clusters": lambda n, D, rng: draw_clusters(10, n, D, rng),
    "20 clusters": lambda n, D, rng: draw_clusters(20, n, D, rng),
}


def print_excess(seeds: int) -> None:
    print(f"\n| independent rows | above {ERRORS} | largest |\n|---|---|---|")
    for name, draw in INDEPENDENT.items():
        found = []
        for seed in range(seeds):
            for n in (60, 120, 480, 2000):
                for D in COLUMNS:
                    rng = np.random.default_rng([seed, n, D])
                    X = draw(n, D, rng)
                    y = (X[:, 0] > np.median(X[:, 0])).astype(int)
                    found.append(find_excess(X, y))
        many = sum(excess > ERRORS for excess in found)
        print(f"| {name} | {many} of {len(found)} | {max(found):.1f} |")
    print(f"\nSmallest excess of {GROUPS} groups of {SIZES} rows:\n")
    print("| columns | " + " | ".join(f"noise {noise:.2f}" for noise in NOISE) + " |")
    print("|---" * (1 + len(NOISE)) + "|")
    for D in COLUMNS:
        cells = [f"{least_excess(D, noise, seeds):.1f}" for noise in NOISE]
        print(f"| {D} | {' | '.join(cells)} |")


def least_excess(D: int, noise: float, seeds: int) -> float:
    found = []
    for size in SIZES:
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            centre = rng.normal(size=(GROUPS, D))
            y = (centre[:, 0] + rng.normal(size=GROUPS) > 0).astype(int)
            X = centre.repeat(size, 0)
            X += noise * rng.normal(size=X.shape)
            found.append(find_excess(X, y.repeat(size)))
    return min(found)


def print_real() -> None:
    print("\n| table | rows | equal rows | excess of near copies |\n|---|---|---|---|")
    for collection in ("raw", "numeric"):
        for entry in table_data.list_tables(collection):
            if entry.rows > MOST_ROWS:
                continue

            frame, y = table_data.read_table(collection, entry.name)
            table = read_table(GivenRows(frame, y), None, "GPClassifier").table
            assert isinstance(table, Table)
            equal = "none"
            if table.kind.max() + 1 < table.n_rows:
                alone = replace(table, cells=False)
                equal = "cells" if has_cells(alone) else "copies"
            excess = find_excess(table.X, table.y)
            if equal != "none" or excess > ERRORS:
                row = (entry.name, table.n_rows, equal, f"{excess:.1f}")
                print(f"| {' | '.join(map(str, row))} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=6)
    seeds = parser.parse_args().seeds
    warnings.simplefilter("ignore")
    print_cells(seeds)
    print_excess(seeds)
    if "CAVITY_DATA" in os.environ:
        print_real()


if __name__ == "__main__":
    main()
