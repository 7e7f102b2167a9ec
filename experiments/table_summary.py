"""What the records of `tables` say, in numbers: ranks, ratios of NLL and seconds,
excess over others, coverage of estimates.

Seeds of a table are averaged first. A ratio is a geometric mean over tables; NLL below
0.01 counts as 0.01. Seconds are compared only on one machine.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np

from experiments.scores import Cell, mean_cell
from experiments.table_fits import unpack_losses

FILE = "raw_tables.csv"
FLOOR = 0.01
LAWS = {
    "prior": "class frequencies",
    "lr": "logistic regression",
    "hgb": "HistGradientBoosting",
}
PAIRED = (*LAWS, "default")  # methods with which losses are compared row by row
ERRORS = 2.0  # standard errors that count as noise
Key = tuple[str, int]  # table, seed


class Result(NamedTuple):
    """One fit."""

    collection: str
    use: str
    table: str
    seed: int
    method: str
    rows: int
    columns: int
    classes: int
    tested: int
    nll: float
    error: float
    se: float  # standard error of the NLL
    fit: float  # seconds
    predict: float
    machine: str
    code: str
    estimate: float = math.nan
    estimate_se: float = math.nan
    se_prior: float = (
        math.nan
    )  # standard error of the difference of the NLL to that of the method
    se_lr: float = math.nan
    se_hgb: float = math.nan
    se_default: float = math.nan

    @property
    def key(self) -> Key:
        return self.table, self.seed


# ---------------------------------------------------------------- records and files
def make_results(records: Iterable[dict[str, Any]]) -> list[Result]:
    """Return the results of records, the last of each fit and machine, with paired
    errors.
    """
    last = {
        (
            r["collection"],
            r["table"],
            r["seed"],
            r.get("train_rows", 0),
            r["method"],
            r["machine"],
        ): r
        for r in records
        if "fail" not in r
    }
    losses = {key[:5]: unpack_losses(r["losses"]) for key, r in last.items()}
    found = []
    for key, record in last.items():
        own = losses[key[:5]]
        others = {name: losses.get((*key[:4], name)) for name in PAIRED}
        paired: dict[str, Any] = {
            f"se_{n}": _paired_error(own, o) for n, o in others.items() if o is not None
        }
        estimate, error = record.get("estimate", (math.nan, math.nan))
        plain = {
            name: record[name]
            for name in Result._fields
            if name in record and name != "estimate"
        }
        found.append(Result(**plain, estimate=estimate, estimate_se=error, **paired))
    return sorted(
        found,
        key=lambda r: (r.collection, r.table, r.rows, r.method, r.seed, r.machine),
    )


def _paired_error(a: np.ndarray, b: np.ndarray) -> float:
    return float((a - b).std() / math.sqrt(len(a))) if len(a) == len(b) else math.nan


def write_results(path: Path, results: list[Result]) -> None:
    """Write the results as CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Result._fields)
        writer.writerows(
            [f"{v:.6g}" if isinstance(v, float) else v for v in r] for r in results
        )


def read_results(path: Path) -> list[Result]:
    """Read the results; an empty list without the file."""
    if not path.exists():
        return []
    kinds = get_type_hints(Result)
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Result(**{name: kinds[name](value) for name, value in row.items()})
            for row in csv.DictReader(file)
        ]


# ---------------------------------------------------------------- arithmetic
def has_tables(results: list[Result], method: str) -> dict[str, list[Result]]:
    """Return the results of a method by table."""
    found: dict[str, list[Result]] = {}
    for r in results:
        if r.method == method:
            found.setdefault(r.table, []).append(r)
    return found


def compare(
    results: list[Result],
    method: str,
    base: str,
    value: Callable[[Result], float],
    one_machine: bool = False,
) -> dict[str, float]:
    """Return the mean log ratio of a value for each table, over the seeds that both
    have.
    """
    theirs: dict[tuple[Any, ...], float] = {}
    for r in results:
        if r.method == base:
            theirs.setdefault((*r.key, r.machine) if one_machine else r.key, value(r))
    found: dict[str, dict[Key, float]] = {}
    for r in results:
        key = (*r.key, r.machine) if one_machine else r.key
        if r.method == method and key in theirs:
            found.setdefault(r.table, {}).setdefault(
                r.key, math.log(value(r) / theirs[key])
            )
    return {table: float(np.mean(list(each.values()))) for table, each in found.items()}


def floored_nll(result: Result) -> float:
    """Return the NLL, at least 0.01."""
    return max(result.nll, FLOOR)


def fit_seconds(result: Result) -> float:
    """Return the seconds of the fit, at least a millisecond."""
    return max(result.fit, 1e-3)


def geometric_mean(logs: Iterable[float]) -> Cell:
    """Return the geometric mean of ratios from their logarithms, with its standard
    error.
    """
    mean, error, n = mean_cell(logs)
    return Cell(math.exp(mean), math.exp(mean) * error, n)


def mean_nll(results: list[Result], method: str) -> dict[str, float]:
    """Return the NLL of each table, the mean over its seeds."""
    return {
        t: float(np.mean([r.nll for r in found]))
        for t, found in has_tables(results, method).items()
    }


def find_ranks(results: list[Result], methods: list[str]) -> dict[str, Cell]:
    """Return the mean rank by NLL over the tables and seeds that all methods have.

    Ties share their ranks.
    """
    from scipy.stats import rankdata

    shared = set.intersection(
        *({r.key for r in results if r.method == m} for m in methods)
    )
    nll = [mean_nll([r for r in results if r.key in shared], m) for m in methods]
    if not shared:
        return {}
    ranks = rankdata(
        [[found[table] for found in nll] for table in sorted(nll[0])], axis=1
    )
    return {m: mean_cell(ranks[:, i]) for i, m in enumerate(methods)}


class Excess(NamedTuple):
    """By how much a method is worse than another on a table, with the paired standard
    error.
    """

    table: str
    mean: float
    se: float

    @property
    def is_worse(self) -> bool:
        """Whether it is worse beyond two errors."""
        return self.mean > ERRORS * self.se


def find_excess(results: list[Result], method: str, base: str) -> list[Excess]:
    """Return the difference of the NLL to a method of `PAIRED` on each table, the mean
    over seeds.
    """
    theirs = {r.key: r.nll for r in results if r.method == base}
    found = []
    for table, mine in has_tables(results, method).items():
        each = {
            r.key: (r.nll - theirs[r.key], getattr(r, f"se_{base}"))
            for r in mine
            if r.key in theirs
        }
        if each:
            difference, error = np.array(list(each.values())).T
            found.append(
                Excess(
                    table,
                    float(difference.mean()),
                    float(np.hypot.reduce(error)) / len(error),
                )
            )
    return found


def find_slow(results: list[Result], share: float = 0.5) -> dict[str, float]:
    """Return the tables on which "fast" takes more than this share of the default's
    seconds.
    """
    ratio = compare(results, "fast", "default", fit_seconds, one_machine=True)
    return {
        table: math.exp(log) for table, log in ratio.items() if log > math.log(share)
    }


def find_coverage(results: list[Result], method: str) -> tuple[int, int, float]:
    """Return how many estimates cover the test NLL within two errors, of how many, and
    the mean z.
    """
    found = [r for r in results if r.method == method and not math.isnan(r.estimate)]
    z = [
        (r.estimate - r.nll) / max(math.hypot(r.estimate_se, r.se), 1e-12)
        for r in found
    ]
    return (
        sum(abs(value) <= ERRORS for value in z),
        len(z),
        float(np.mean(z)) if z else math.nan,
    )
