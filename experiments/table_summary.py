"""What the records of `tables` say: ranks, ratios of NLL and seconds, laws, estimates, and what each member buys.

Seeds of a table are averaged first. A ratio is a geometric mean over tables; NLL below 0.01 counts as 0.01. Seconds are compared
only on one machine.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np

from experiments.scores import Cell, mean_cell
from experiments.table_fits import MEMBERS, PEERS, unpack_losses
from experiments.tables import bold_lowest, markdown

FILE = "raw_tables.csv"
FLOOR = 0.01
BASES = ("hgb", "cat", "lgbm", "lr")  # that ratios are of
LAWS = {"prior": "class frequencies", "lr": "logistic regression", "hgb": "HistGradientBoosting"}
PAIRED = (*LAWS, "default")  # methods with which losses are compared row by row
ERRORS = 2.0  # standard errors that count as noise
NAMES = {
    "default": "cavity, default",
    "fast": 'cavity, `"fast"`',
    "hgb": "HistGradientBoosting",
    "lgbm": "LightGBM",
    "cat": "CatBoost",
    "lr": "logistic regression",
    "prior": "class frequencies",
    "realmlp": "RealMLP",
    "autogluon": "AutoGluon, 90 s",
}
TITLES = {"choose": "Tables that defaults were chosen on: {}", "report": "Tables that decided nothing: {}"}
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
    se_prior: float = math.nan  # standard error of the difference of the NLL to that of the method
    se_lr: float = math.nan
    se_hgb: float = math.nan
    se_default: float = math.nan

    @property
    def key(self) -> Key:
        return self.table, self.seed


# ---------------------------------------------------------------- records and files
def make_results(records: Iterable[dict[str, Any]]) -> list[Result]:
    """Return the results of records, the last of each fit and machine, with paired errors."""
    last = {
        (r["collection"], r["table"], r["seed"], r.get("train_rows", 0), r["method"], r["machine"]): r
        for r in records
        if "fail" not in r
    }
    losses = {key[:5]: unpack_losses(r["losses"]) for key, r in last.items()}
    found = []
    for key, record in last.items():
        own, others = losses[key[:5]], {name: losses.get((*key[:4], name)) for name in PAIRED}
        paired: dict[str, Any] = {
            f"se_{n}": _paired_error(own, o) for n, o in others.items() if o is not None
        }
        estimate, error = record.get("estimate", (math.nan, math.nan))
        plain = {name: record[name] for name in Result._fields if name in record and name != "estimate"}
        found.append(Result(**plain, estimate=estimate, estimate_se=error, **paired))
    return sorted(found, key=lambda r: (r.collection, r.table, r.rows, r.method, r.seed, r.machine))


def _paired_error(a: np.ndarray, b: np.ndarray) -> float:
    return float((a - b).std() / math.sqrt(len(a))) if len(a) == len(b) else math.nan


def write_results(path: Path, results: list[Result]) -> None:
    """Write the results as CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Result._fields)
        writer.writerows([f"{v:.6g}" if isinstance(v, float) else v for v in r] for r in results)


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
    results: list[Result], method: str, base: str, value: Callable[[Result], float], one_machine: bool = False
) -> dict[str, float]:
    """Return the mean log ratio of a value for each table, over the seeds that both have."""
    theirs: dict[tuple[Any, ...], float] = {}
    for r in results:
        if r.method == base:
            theirs.setdefault((*r.key, r.machine) if one_machine else r.key, value(r))
    found: dict[str, dict[Key, float]] = {}
    for r in results:
        key = (*r.key, r.machine) if one_machine else r.key
        if r.method == method and key in theirs:
            found.setdefault(r.table, {}).setdefault(r.key, math.log(value(r) / theirs[key]))
    return {table: float(np.mean(list(each.values()))) for table, each in found.items()}


def floored_nll(result: Result) -> float:
    """Return the NLL, at least 0.01."""
    return max(result.nll, FLOOR)


def fit_seconds(result: Result) -> float:
    """Return the seconds of the fit, at least a millisecond."""
    return max(result.fit, 1e-3)


def geometric_mean(logs: Iterable[float]) -> Cell:
    """Return the geometric mean of ratios from their logarithms, with its standard error."""
    mean, error, n = mean_cell(logs)
    return Cell(math.exp(mean), math.exp(mean) * error, n)


def mean_nll(results: list[Result], method: str) -> dict[str, float]:
    """Return the NLL of each table, the mean over its seeds."""
    return {t: float(np.mean([r.nll for r in found])) for t, found in has_tables(results, method).items()}


def find_ranks(results: list[Result], methods: list[str]) -> dict[str, Cell]:
    """Return the mean rank by NLL over the tables and seeds that all methods have. Ties share their ranks."""
    from scipy.stats import rankdata

    shared = set.intersection(*({r.key for r in results if r.method == m} for m in methods))
    nll = [mean_nll([r for r in results if r.key in shared], m) for m in methods]
    if not shared:
        return {}
    ranks = rankdata([[found[table] for found in nll] for table in sorted(nll[0])], axis=1)
    return {m: mean_cell(ranks[:, i]) for i, m in enumerate(methods)}


class Excess(NamedTuple):
    """By how much a method is worse than another on a table, with the paired standard error."""

    table: str
    mean: float
    se: float

    @property
    def is_worse(self) -> bool:
        """Whether it is worse beyond two errors."""
        return self.mean > ERRORS * self.se


def find_excess(results: list[Result], method: str, base: str) -> list[Excess]:
    """Return the difference of the NLL to a method of `PAIRED` on each table, the mean over seeds."""
    theirs = {r.key: r.nll for r in results if r.method == base}
    found = []
    for table, mine in has_tables(results, method).items():
        each = {r.key: (r.nll - theirs[r.key], getattr(r, f"se_{base}")) for r in mine if r.key in theirs}
        if each:
            difference, error = np.array(list(each.values())).T
            found.append(Excess(table, float(difference.mean()), float(np.hypot.reduce(error)) / len(error)))
    return found


def find_slow(results: list[Result], share: float = 0.5) -> dict[str, float]:
    """Return the tables on which "fast" takes more than this share of the default's seconds."""
    ratio = compare(results, "fast", "default", fit_seconds, one_machine=True)
    return {table: math.exp(log) for table, log in ratio.items() if log > math.log(share)}


def find_coverage(results: list[Result], method: str) -> tuple[int, int, float]:
    """Return how many estimates cover the test NLL within two errors, of how many, and the mean z."""
    found = [r for r in results if r.method == method and not math.isnan(r.estimate)]
    z = [(r.estimate - r.nll) / max(math.hypot(r.estimate_se, r.se), 1e-12) for r in found]
    return sum(abs(value) <= ERRORS for value in z), len(z), float(np.mean(z)) if z else math.nan


# ---------------------------------------------------------------- text
def name(method: str) -> str:
    """Name of a method in tables."""
    tree, _, method = method.rpartition(":")
    return NAMES.get(method, method) + (f" ({tree})" if tree else "")


def is_ours(method: str) -> bool:
    return method.rpartition(":")[2] not in PEERS


def _is_part(method: str) -> bool:
    """Whether a method is a pool without a member."""
    return method.partition("-")[2] in MEMBERS


def order_methods(results: list[Result]) -> list[str]:
    """Return the methods that have results: ours, then the peers."""
    found = dict.fromkeys(r.method for r in results if not _is_part(r.method))
    first = [m for m in NAMES if m in found]
    return [
        *(m for m in first if is_ours(m)),
        *(m for m in found if m not in first),
        *(m for m in first if not is_ours(m)),
    ]


def ratio_table(results: list[Result]) -> str:
    """Ranks, and ratios to the bases; best rank first. Methods without every table have no rank."""
    methods = order_methods(results)
    most = max(len(has_tables(results, m)) for m in methods)
    ranks = find_ranks(results, [m for m in methods if len(has_tables(results, m)) == most])
    bases = [b for b in BASES if b in methods]
    lines = []
    for m in sorted(methods, key=lambda m: ranks[m].mean if m in ranks else math.inf):
        seconds = compare(results, m, "hgb", fit_seconds, one_machine=True).values()
        nll = {b: compare(results, m, b, floored_nll) for b in bases}
        won = nll.get("hgb", {}).values()
        lines.append([
            name(m),
            str(len(has_tables(results, m))),
            ranks[m].text(2) if m in ranks else "–",
            *("1" if b == m else geometric_mean(nll[b].values()).text() if nll[b] else "–" for b in bases),
            "" if m == "hgb" or not won else f"{sum(log < 0 for log in won)} of {len(won)}",
            f"{geometric_mean(seconds).mean:.2g}" if seconds else "–",
        ])  # fmt: skip
    ratios = (f"NLL / {NAMES[b]}" for b in bases)
    return markdown(
        ["method", "tables", "rank", *ratios, "better than boosting", "seconds / HistGradientBoosting"], lines
    )


def nll_table(results: list[Result]) -> str:
    """NLL of every table, the mean over its seeds."""
    methods, lines = order_methods(results), []
    nll = {m: mean_nll(results, m) for m in methods}
    for table, some in sorted({r.table: r for r in results}.items()):
        cells = {m: nll[m][table] for m in methods if table in nll[m]}
        if cells:
            facts = [table, f"{some.rows:,}", str(some.columns), str(some.classes)]
            lines.append([*facts, *bold_lowest(cells, methods)])
    return markdown(["table", "training rows", "columns", "classes", *map(name, methods)], lines)


def law_table(results: list[Result]) -> str:
    """On which tables ours is worse than a simple method by more than two paired errors."""
    lines = []
    for m in (m for m in order_methods(results) if is_ours(m)):
        for base, words in LAWS.items():
            found = find_excess(results, m, base)
            worse = sorted((e for e in found if e.is_worse), key=lambda e: -e.mean)
            where = ", ".join(f"{e.table} (+{e.mean:.3f} ± {e.se:.3f})" for e in worse)
            if found:
                lines.append([name(m), words, f"{len(worse)} of {len(found)}", where])
    return markdown(["method", "worse than", "tables", "where"], lines) if lines else ""


def member_table(results: list[Result]) -> str:
    """What each member buys: the default without it, divided by the default."""
    lines = []
    for m in (f"default-{member}" for member in MEMBERS):
        nll = compare(results, m, "default", floored_nll)
        if nll:
            seconds = compare(results, m, "default", fit_seconds, one_machine=True).values()
            cells = [geometric_mean(nll.values()).text(4), str(sum(log > 0 for log in nll.values()))]
            share = f"{geometric_mean(seconds).mean:.2f}" if seconds else "–"
            lines.append([m.partition("-")[2], str(len(nll)), *cells, share])
    head = ["without", "tables", "NLL / default", "tables that it helps", "seconds / default"]
    return markdown(head, lines) if lines else ""


def sentences(results: list[Result]) -> str:
    """Slow tables of "fast", gain of the efforts, and coverage of the estimates."""
    said = []
    both = compare(results, "fast", "default", fit_seconds, one_machine=True)
    if both:
        slow = find_slow(results)
        where = ", ".join(f"{t} {r:.2f}" for t, r in sorted(slow.items(), key=lambda item: -item[1]))
        said.append(
            f'`"fast"` takes more than half of the default\'s seconds on {len(slow)} of {len(both)} tables'
            + (f": {where}." if where else ".")
        )
    older = [(m.rpartition(":")[2], m) for m in order_methods(results) if ":" in m]
    for m, base in (("fast", "default"), *older):
        nll = compare(results, m, base, floored_nll)
        if nll:
            seconds = compare(results, m, base, fit_seconds, one_machine=True).values()
            times = f" at {geometric_mean(seconds).mean:.2f} of its seconds" if seconds else ""
            said.append(
                f"{name(m)} has {geometric_mean(nll.values()).text()} of the NLL of {name(base)}{times}."
            )
    for m in order_methods(results):
        covered, count, z = find_coverage(results, m)
        if count:
            said.append(
                f"`estimate_` of {name(m)} covers the test NLL within two errors in {covered} of {count} fits (mean z {z:+.2f})."
            )
    return "\n".join(said)


def summarize(results: list[Result]) -> str:
    """Return all tables, the collections and uses apart."""
    parts = []
    for collection, use in dict.fromkeys((r.collection, r.use) for r in results):
        some = [r for r in results if (r.collection, r.use) == (collection, use)]
        tables = (ratio_table, law_table, sentences, member_table, nll_table)
        parts += [f"### {TITLES.get(use, use).format(collection)}", *(table(some) for table in tables)]
    return "\n\n".join(part for part in parts if part) or "No results."


def short_table(results: Path) -> str:
    """Return the ranks and ratios of the raw tables that decided nothing."""
    found = [r for r in read_results(results / FILE) if (r.collection, r.use) == ("raw", "report")]
    return ratio_table(found) if found else "Not measured yet: `python -m experiments tables`."


def write_section(results: Path, text: str) -> str:
    """Return the section of docs/results/comparison.md; an empty string without results."""
    found = read_results(results / FILE)
    return f"## Tables as people have them\n\n{text}\n\n{summarize(found)}" if found else ""
