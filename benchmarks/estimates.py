"""Whether `estimate_` covers new rows: generated tables of all sizes, and 40 rows with
up to 100 copies of each.

A table has 20 to 3,000 rows, 2 to 64 columns and 2 to 15 classes of seven families,
labels of which up to 30 % are random, and one of five kinds: plain, copies of every
row, groups of near copies with one label, `class_weight="balanced"`, or random weights.
Its number decides these; the seed draws its law and its rows, and is the model's
`random_state`. An estimate covers if the log loss of 4,000 new rows (of new groups) is
within two standard errors, to which that of the new rows is added. z is the distance in
these errors, and bias is estimated less new accuracy. Goals of each effort: 94 %
covered, mean z within .3, mean bias at most .01.

    python benchmarks/estimates.py [--jobs 16] [--seeds 0 3] [--out rows.jsonl] [--only
    40 5] [--seconds 300]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
import warnings
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

from cavity import GPClassifier

NEW_ROWS = 4000
SIZES = [20, 40, 80, 150, 300, 600, 1200, 3000]
KINDS = ["plain", "copies", "groups", "balanced", "weights"]
COPIES = [1, 5, 20, 40, 100]
COVERED, Z, BIAS = 0.94, 0.3, 0.01  # goals


class Case(NamedTuple):
    """What is fitted: `table` is a number, or "c" and the number of a table of 40 rows."""

    table: str
    seed: int
    effort: str
    rows: int
    columns: int
    classes: int
    family: int
    kind: str
    copies: int = 1


class Drawn(NamedTuple):
    """Training rows, and new rows of the same law."""

    X: np.ndarray
    y: np.ndarray
    group: np.ndarray
    new: np.ndarray
    labels: np.ndarray


def list_cases(tables: int, of_copies: int, seeds: tuple[int, int]) -> list[Case]:
    """Return all fits, those that take longest first."""
    cases = []
    for number in range(tables + of_copies):
        rng = np.random.default_rng(810_000 + number)
        i = number - tables
        rows = SIZES[number % len(SIZES)] if i < 0 else 40
        classes = min(int(rng.choice([2, 2, 3, 3, 5, 8, 15])), rows // 8)
        columns = int(rng.choice([2, 4, 8, 16, 32, 64]))
        kind = KINDS[number // len(SIZES) % len(KINDS)] if i < 0 else "copies"
        copies = [1]
        if i >= 0:
            copies = COPIES
        elif kind == "copies":
            copies = [int(rng.choice([2, 5, 20]))]
        name = str(number) if i < 0 else f"c{i}"
        for seed in range(*seeds):
            for effort in ("balanced", "fast"):
                for each in copies:
                    cases.append(
                        Case(
                            name,
                            seed,
                            effort,
                            rows,
                            columns,
                            classes,
                            number % 7,
                            kind,
                            each,
                        )
                    )
    return sorted(
        cases,
        key=lambda c: -c.rows * c.classes * c.columns * (1 + (c.effort == "balanced")),
    )


def draw_table(case: Case) -> Drawn:
    """Draw a law and a table of it, again until the table has two classes with two rows
    or groups each.
    """
    number = int(case.table.lstrip("c")) + 1000 * case.table.startswith("c")
    rng = np.random.default_rng([820_000, number, case.seed])
    N = case.rows
    D = case.columns
    C = case.classes
    size = (
        int(rng.choice([s for s in (2, 5, 10) if s <= N // 10]))
        if case.kind == "groups"
        else 1
    )
    known: list[int] = []
    while len(known) < 2:
        X, y = draw_law(rng, case.family, N // size + NEW_ROWS, D, C)
        counts = np.bincount(y[: N // size], minlength=C)
        known = [c for c in range(C) if counts[c] > 0] if (counts > 1).sum() > 1 else []
    kept = np.isin(y, known)
    n = int(kept[: N // size].sum())
    X = X[kept]
    y = np.searchsorted(known, y[kept])
    group = np.arange(n).repeat(size)
    near = rng.choice([0.001, 0.1, 0.5])  # of rows of a group
    rows = X[:n].repeat(size, 0)
    if size > 1:
        rows = rows + near * rng.normal(size=rows.shape)
        X = X + near * rng.normal(size=X.shape)
    rows, group, of_rows = (
        x.repeat(case.copies if case.kind == "copies" else 1, 0)
        for x in (rows, group, y[:n].repeat(size))
    )
    return Drawn(rows, of_rows, group, X[n:], y[n:])


def draw_law(
    rng: np.random.Generator, family: int, n: int, D: int, C: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw a law, and n rows with labels."""
    X = rng.normal(size=(n, D))
    scale = 1.5 / np.sqrt(D)
    if family == 0:  # Gaussian classes
        centres = rng.normal(size=(C, D)) * rng.uniform(0.5, 1.6) * scale
        y = rng.integers(C, size=n)
        X = X + centres[y]
    elif family == 1:  # smooth functions
        w = rng.normal(size=(D, 64)) / rng.uniform(1, 3) * scale
        b = rng.uniform(0, 6.3, 64)
        f = np.cos(X @ w + b) @ rng.normal(size=(64, C)) / 8 * rng.uniform(1, 4)
        y = (f + rng.gumbel(size=f.shape) * rng.choice([0.2, 0.5, 1.0])).argmax(1)
    elif family == 2:  # linear functions
        f = X @ rng.normal(size=(D, C)) * rng.uniform(0.2, 1.5) * scale
        y = (f + rng.gumbel(size=f.shape)).argmax(1)
    elif family == 3:  # a tree of four cuts
        cell = np.zeros(n, int)
        for _ in range(4):
            cell = 2 * cell + (X[:, rng.integers(D)] > rng.normal() * 0.6)
        y = rng.integers(C, size=16)[cell]
    elif family == 4:  # waves of two columns
        f = np.stack(
            [np.sin(X[:, :2] @ rng.normal(size=2) * 1.5 + i) for i in range(C)], 1
        )
        y = (f * rng.uniform(1, 3) + rng.gumbel(size=f.shape)).argmax(1)
    elif family == 5:  # labels at random
        y = rng.integers(C, size=n)
    else:  # whole numbers that say little
        X = np.round(X * 1.5) + 0.0
        f = (
            np.log(rng.dirichlet(np.ones(C) * 2))
            + X @ rng.normal(size=(D, C)) * 0.2 * scale
        )
        y = (f + rng.gumbel(size=f.shape)).argmax(1)
    return X, np.where(
        rng.random(n) < rng.choice([0.0, 0.1, 0.3]), rng.integers(C, size=n), y
    )


def measure(case: Case, limit: int) -> dict[str, Any]:
    """Fit a model and compare its estimate with new rows; after `limit` seconds, "time"
    stands for the figures.
    """
    warnings.simplefilter("ignore")
    table = draw_table(case)
    begun = time.process_time()
    rng = np.random.default_rng(case.seed)
    balanced = case.kind == "balanced"
    model = GPClassifier(
        effort=case.effort,
        class_weight="balanced" if balanced else None,
        random_state=case.seed,
    )
    signal.signal(signal.SIGALRM, _stop)
    signal.alarm(limit)
    try:
        model.fit(
            table.X,
            table.y,
            sample_weight=rng.lognormal(size=len(table.y))
            if case.kind == "weights"
            else None,
            groups=table.group if case.kind == "groups" else None,
        )
        P = model.predict_proba(table.new)
    except TimeoutError:
        return {
            **case._asdict(),
            "failed": "time",
            "seconds": time.process_time() - begun,
        }
    finally:
        signal.alarm(0)
    found = model.estimate_
    if found is None:
        return {
            **case._asdict(),
            "failed": "no estimate",
            "seconds": time.process_time() - begun,
        }
    scored = ~np.isin(
        table.labels, found.absent
    )  # the loss of an absent class is not known
    P = P[scored]
    labels = table.labels[scored]
    weight = 1 / np.bincount(table.y)[labels] if balanced else np.ones(len(labels))
    weight = weight / weight.sum()
    loss = -np.log(np.maximum(P[np.arange(len(P)), labels], 1e-300))
    nll = float(weight @ loss)
    accuracy = float(weight @ (P.argmax(1) == labels))
    error = np.hypot(found.standard_error, np.linalg.norm(weight * (loss - nll)))
    return {
        **case._asdict(),
        "estimate": found.log_loss,
        "error": found.standard_error,
        "nll": nll,
        "z": float((found.log_loss - nll) / error),
        "bias": found.accuracy - accuracy,
        "gain": found.baseline_log_loss - nll,
        "seconds": time.process_time() - begun,
    }


def _stop(*_: object) -> None:
    raise TimeoutError


def describe(rows: list[dict[str, Any]]) -> tuple[str, list[str]]:
    """Return a line of figures, and the goals that they miss."""
    done = [row for row in rows if "z" in row]
    z = np.array([row["z"] for row in done])
    bias = np.array([row["bias"] for row in done])
    covered = int((abs(z) < 2).sum())
    n = len(rows)
    if not done:
        return f"{n:5} no figures", ["all"]
    missed = {
        "covered": covered / n < COVERED,
        "z": abs(z.mean()) > Z,
        "bias": abs(bias.mean()) > BIAS,
    }
    text = (
        f"{n:5} {covered / n:8.1%} {z.mean():6.2f} ± {z.std() / np.sqrt(len(z)):4.2f} "
        f"{z.std():5.2f} "
        f"{bias.mean():7.3f} ± {bias.std() / np.sqrt(len(z)):.3f} "
        f"{sum(row['seconds'] for row in rows):8.0f}"
    )
    return text, [name for name, is_missed in missed.items() if is_missed]


def report(rows: list[dict[str, Any]]) -> None:
    """Print figures of each effort: of all tables and by kind, size, family and number
    of copies; then the misses.
    """
    print(
        f"{'':32}{'fits':>5} {'covered':>8} {'z':>6}          sd {'bias':>7}         "
        f"{'CPU s':>8}"
    )
    of_tables, of_copies = (
        [r for r in rows if (r["table"][0] == "c") == part] for part in (False, True)
    )
    for effort in ("fast", "balanced"):
        lines: list[tuple[str, list[dict[str, Any]]]] = [("tables", of_tables)]
        lines += [
            (f"tables, {kind}", [r for r in of_tables if r["kind"] == kind])
            for kind in KINDS
        ]
        lines += [
            (f"tables, {size} rows", [r for r in of_tables if r["rows"] == size])
            for size in SIZES
        ]
        lines += [
            (f"tables, family {i}", [r for r in of_tables if r["family"] == i])
            for i in range(7)
        ]
        lines += [
            (f"40 rows, {n} copies", [r for r in of_copies if r["copies"] == n])
            for n in COPIES
        ]
        for name, chosen in lines:
            of_effort = [row for row in chosen if row["effort"] == effort]
            if of_effort:
                text, missed = describe(of_effort)
                goal = name == "tables" or name.startswith("40 rows")
                print(
                    f"{effort:10} {name:21}{text}",
                    f" MISSED: {', '.join(missed)}" if goal and missed else "",
                )
    print("\nNot covered:")
    for row in rows:
        if abs(row.get("z", np.inf)) >= 2:
            known = {key: value for key, value in row.items() if key != "seconds"}
            print(
                " ",
                *(
                    f"{k}={v:.3f}" if isinstance(v, float) else f"{k}={v}"
                    for k, v in known.items()
                ),
            )


def main() -> None:
    """Fit all tables, write a row for each fit, and print the figures next to the
    goals.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--jobs", type=int, default=1, help="processes, each of one thread"
    )
    parser.add_argument(
        "--seeds",
        type=int,
        nargs=2,
        default=(0, 3),
        help="first, and one after the last",
    )
    parser.add_argument(
        "--only",
        type=int,
        nargs=2,
        default=(40, 40),
        metavar=("TABLES", "OF_COPIES"),
        help="number of tables, and of tables of 40 rows with copies",
    )
    parser.add_argument(
        "--rows", type=int, default=SIZES[-1], help="leave out larger tables"
    )
    parser.add_argument("--efforts", nargs="+", default=["fast", "balanced"])
    parser.add_argument("--seconds", type=int, default=300, help="limit of a fit")
    parser.add_argument("--out", default="estimates.jsonl", help="file of rows")
    options = parser.parse_args()
    cases = [
        c
        for c in list_cases(*options.only, options.seeds)
        if c.rows <= options.rows and c.effort in options.efforts
    ]
    rows = []
    with (
        get_context("spawn").Pool(options.jobs) as pool,
        open(options.out, "w", encoding="utf-8") as file,
    ):
        for row in pool.imap_unordered(partial(measure, limit=options.seconds), cases):
            rows.append(row)
            print(json.dumps(row), file=file, flush=True)
    report(
        sorted(
            rows,
            key=lambda row: (row["effort"], row["table"], row["copies"], row["seed"]),
        )
    )


if __name__ == "__main__":
    main()
