"""`python -m experiments curve`: seconds and test NLL against the number of training
rows, ours next to boosting.

    python -m experiments curve --jobs 2 --out FILE.jsonl [--only letter,magic] [--sizes
    300,1000] [--methods default,fast,hgb] python -m experiments curve --summary --out
    FILE.jsonl --csv benchmarks/results/row_curve.csv

The training rows of a size are the first of those of the next one, and the test rows
are the same for all.
"""

from __future__ import annotations

import argparse
import hashlib
import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from experiments import table_summary
from experiments.table_data import FLIGHTS, TRAIN_SHARE, list_tables
from experiments.table_runs import (
    Record,
    add_run_options,
    read_records,
    run_missing,
    split_methods,
)
from experiments.table_summary import (
    Result,
    compare,
    fit_seconds,
    floored_nll,
    geometric_mean,
)
from experiments.table_text import NAMES
from experiments.tables import markdown

SIZES = (300, 1000, 3000, 10_000, 30_000, 100_000)
TABLES = (("numeric", "letter"), ("numeric", "magic"), ("numeric", FLIGHTS))
FLIGHT_ROWS = 273_853
TEST_ROWS = 10_000
METHODS = ("default", "fast", "hgb", "lgbm")
GOALS = {"default": 8.0, "fast": 3.0}  # times the seconds of HistGradientBoosting
LEAST_SECONDS = 1.0  # shorter fits need no ratio
FILE = "row_curve.csv"


def make_jobs(args: argparse.Namespace) -> list[Record]:
    """Return the fits, the smallest first."""
    entries = [*list_tables("numeric"), *list_tables("large")]
    rows = {(entry.collection, entry.name): entry.rows for entry in entries}
    rows["numeric", FLIGHTS] = FLIGHT_ROWS
    found = [*TABLES, *(key for key in rows if key[0] == "large")]
    chosen = [key for key in found if not args.only or key[1] in args.only.split(",")]
    sizes = map(int, args.sizes.split(","))
    grid = product(sizes, chosen, split_methods(args.methods))
    return [
        {
            "collection": key[0],
            "use": "report",
            "table": key[1],
            "seed": 0,
            "method": method,
            "train_rows": size,
            "test_rows": TEST_ROWS,
        }
        for size, key, method in grid
        if size <= TRAIN_SHARE * rows[key]
    ]


# ---------------------------------------------------------------- docs/results/performance.md
def by_size(results: list[Result]) -> dict[int, list[Result]]:
    """Return the results of each number of training rows."""
    sizes = sorted({r.rows for r in results})
    return {size: [r for r in results if r.rows == size] for size in sizes}


def size_table(results: list[Result]) -> str:
    """Seconds and NLL relative to HistGradientBoosting for each number of rows:
    geometric means over tables.
    """
    methods = [m for m in METHODS if m != "hgb" and any(r.method == m for r in results)]
    lines = []
    for size, some in by_size(results).items():
        line = [f"{size:,}", str(len({r.table for r in some}))]
        for m in methods:
            logs = compare(some, m, "hgb", fit_seconds, one_machine=True).values()
            line.append(geometric_mean(logs).text(2) if logs else "–")
        for m in methods:
            logs = compare(some, m, "hgb", floored_nll).values()
            line.append(geometric_mean(logs).text(3) if logs else "–")
        lines.append(line)
    cells = product(("seconds", "NLL"), methods)
    heads = [f"{what}, {NAMES[method]}" for what, method in cells]
    return markdown(["training rows", "tables", *heads], lines)


def goal_sentence(results: list[Result]) -> str:
    """Say on how many points the seconds are within the goals, and the NLL not above
    that of boosting.
    """
    said = []
    for method, times in GOALS.items():
        points = []
        for size, some in by_size(results).items():
            fits = {r.table: r.fit for r in reversed(some) if r.method == method}
            logs = compare(some, method, "hgb", fit_seconds, one_machine=True)
            points += [(size, table, log, fits[table]) for table, log in logs.items()]
        slow = [
            (s, t, log)
            for s, t, log, own in points
            if log > math.log(times) and own > LEAST_SECONDS
        ]
        where = ", ".join(
            f"{t} with {s:,} rows ({math.exp(log):.0f})" for s, t, log in slow
        )
        lost = []
        for (size, some), peer in product(by_size(results).items(), ("hgb", "lgbm")):
            lost += [
                f"{table} with {size:,} rows ({math.exp(log):.2f} of {NAMES[peer]})"
                for table, log in compare(some, method, peer, floored_nll).items()
                if log > 0
            ]
        if points:
            said.append(
                f"{NAMES[method]} takes more than {times:.0f} times the seconds of "
                f"HistGradientBoosting, and more than "
                f"one second, at {len(slow)} of {len(points)} "
                f"points{': ' + where if where else ''}. "
                f"Its NLL is higher at {', '.join(lost) or 'none'}."
            )
    return "\n\n".join(said)


def choose_machine(results: list[Result]) -> dict[tuple[str, int, str], Result]:
    """Return each fit on the machine of the default's; where that has none, on the one
    it has.
    """
    machine = next((r.machine for r in results if r.method == "default"), "")
    ordered = sorted(results, key=lambda r: r.machine == machine)
    return {(r.table, r.rows, r.method): r for r in ordered}


def _cell(result: Result | None, machine: str) -> str:
    if result is None:
        return "–"

    dagger = "" if result.machine == machine else "†"
    return f"{result.fit:.3g} s{dagger}, {result.nll:.3f}"


def full_table(results: list[Result]) -> str:
    """Seconds and NLL of every fit; a dagger marks seconds of another machine than
    HistGradientBoosting's.
    """
    methods = [m for m in METHODS if any(r.method == m for r in results)]
    found = choose_machine(results)
    lines = []
    for table, size in dict.fromkeys((r.table, r.rows) for r in results):
        line = [found.get((table, size, m)) for m in methods]
        machine = next((r.machine for r in line if r and r.method == "hgb"), "")
        lines.append([table, f"{size:,}", *(_cell(r, machine) for r in line)])
    return markdown(["table", "training rows", *(NAMES[m] for m in methods)], lines)


def write_block(results: Path) -> str:
    """Return the tables of the page."""
    found = table_summary.read_results(results / FILE)
    if not found:
        return "Not measured yet: `python -m experiments curve`."
    picture = "![Seconds of a fit and test NLL against training rows](../figures/row_curve.png)"
    return "\n\n".join(
        [size_table(found), goal_sentence(found), picture, full_table(found)]
    )


def digest(results: Path) -> str:
    """Digest of what the figure shows."""
    shown = [
        (r.table, r.rows, r.method, r.fit, r.nll)
        for r in table_summary.read_results(results / FILE)
    ]
    return "rows-" + hashlib.sha256(repr(shown).encode()).hexdigest()[:16]


def draw(results: Path, path: Path) -> None:
    """Seconds and NLL against rows, a pair of panels per table."""
    from matplotlib.figure import Figure

    found = list(choose_machine(table_summary.read_results(results / FILE)).values())
    tables = list(dict.fromkeys(r.table for r in found))
    across = min(4, len(tables))
    down = -(-len(tables) // across)
    figure = Figure(figsize=(3.1 * across, 4.2 * down), layout="constrained")
    panels: Any = figure.subplots(2 * down, across, squeeze=False)
    for i, table in enumerate(tables):
        pair = panels[2 * (i // across) : 2 * (i // across) + 2, i % across]
        for j, method in enumerate(METHODS):
            line = sorted(
                (r.rows, r.fit, r.nll)
                for r in found
                if (r.table, r.method) == (table, method)
            )
            if line:
                for axis, values in zip(
                    pair, zip(*[x[1:] for x in line], strict=True), strict=True
                ):
                    axis.plot(
                        [x[0] for x in line],
                        values,
                        "o-",
                        ms=3,
                        color=f"C{j}",
                        label=NAMES[method].replace("`", ""),
                    )
        pair[0].set(
            title=table,
            xscale="log",
            yscale="log",
            ylabel="" if i % across else "CPU seconds",
        )
        pair[1].set(
            xscale="log",
            xlabel="training rows",
            ylabel="" if i % across else "test NLL",
        )
    figure.legend(
        *panels[0, 0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=len(METHODS),
    )
    figure.savefig(
        path, dpi=80, metadata={"Description": digest(results), "Software": None}
    )


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments curve",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run_options(parser, Path("curve.jsonl"))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--only", help="only these tables")
    args = parser.parse_args(arguments)
    if not args.summary:
        run_missing(make_jobs(args), args)
    results = table_summary.make_results(read_records([args.out, *args.join]))
    if args.csv is not None:
        table_summary.write_results(args.csv, results)
    print(
        "\n\n".join([size_table(results), goal_sentence(results), full_table(results)])
    )
    return 0
