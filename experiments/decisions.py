"""Decisions by costs against a tuned threshold: `python -m experiments decisions`.

A miss of the rarer class costs ten times a false alarm. One fit decides by the costs;
scikit-learn's TunedThresholdClassifierCV needs five more fits to tune a threshold. Both
are judged on the same test rows, which neither saw.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from experiments.table_data import read_table, split_table

TABLES = (
    "wa_churn", "caravan", "spam7", "credit_data", "email", "rotterdam",
    "acs12_lang", "attrition", "swisslabor", "college", "biopsy", "indo_rct",
)  # fmt: skip
MISS = 10.0  # cost of missing the rarer class; a false alarm costs 1
FOLDS = 5


class Outcome(NamedTuple):
    """Costs per test row."""

    table: str
    rule: float
    tuned: float
    predict: float
    constant: float
    error: float  # standard error of rule − tuned, paired
    threshold: float  # tuned; that of the costs is 1/11
    seconds: tuple[float, float]


def compare(table: str, effort: str, seed: int, rows: int = 0) -> Outcome:
    """Compare both ways to decide on one table."""
    from sklearn.metrics import make_scorer
    from sklearn.model_selection import StratifiedKFold, TunedThresholdClassifierCV

    from cavity import Costs, GPClassifier
    from cavity.common.scoring import average

    X, y = read_table("raw", table)
    yes = int(np.bincount(y).argmin())
    y = (y == yes).astype(np.int64)
    split = split_table(X, y, seed, rows)
    train = X.iloc[split.train]
    test = X.iloc[split.test]
    truth = y[split.test]
    costs = Costs(positive=1, false_positive=1, false_negative=MISS)
    matrix = costs.matrix([0, 1])

    def gain(true: Any, decided: Any) -> float:
        return -float(matrix[true, decided].mean())

    warnings.simplefilter("ignore")
    options: dict[str, Any] = {"effort": effort, "random_state": seed}
    model = GPClassifier(**options)
    begun = time.perf_counter()
    model.fit(train, y[split.train])
    rule = matrix[truth, model.decide(test, costs).action]
    middle = time.perf_counter()
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    tuned = TunedThresholdClassifierCV(
        GPClassifier(**options),
        scoring=make_scorer(gain),
        cv=folds,
        thresholds=300,
    ).fit(train, y[split.train])
    other = matrix[truth, tuned.predict(test)]
    ended = time.perf_counter()
    mean, error = average(rule - other)
    return Outcome(
        table,
        float(rule.mean()),
        float(rule.mean()) - mean,
        float(matrix[truth, model.predict(test)].mean()),
        float(matrix[truth].mean(0).min()),
        error,
        float(tuned.best_threshold_),
        (middle - begun, ended - middle),
    )


def format_outcomes(found: Sequence[Outcome]) -> str:
    """Format a Markdown table, and the sum of all tables."""
    lines = [
        "| table | decide | tuned | difference ± error | predict | constant "
        "| tuned threshold | seconds: decide, tuned |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        off = f"{one.rule - one.tuned:+.3f} ± {one.error:.3f}"
        numbers = f"{one.predict:.3f} | {one.constant:.3f} | {one.threshold:.3f}"
        seconds = "{:.0f}, {:.0f}".format(*one.seconds)
        lines.append(
            f"| {one.table} | {one.rule:.3f} | {one.tuned:.3f} | {off} | {numbers} "
            f"| {seconds} |"
        )

    total = sum(one.rule - one.tuned for one in found) / len(found)
    error = math.sqrt(sum(one.error**2 for one in found)) / len(found)
    worse = [o.table for o in found if o.rule - o.tuned > 2 * o.error]
    lines.append(f"\nMean difference {total:+.4f} ± {error:.4f} per row.")
    lines.append(f"Dearer by two errors: {', '.join(worse) or 'none'}.")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare on some tables, several at a time."""
    parser = argparse.ArgumentParser(prog="python -m experiments decisions")
    parser.add_argument("--sets", nargs="+", default=TABLES, choices=TABLES)
    parser.add_argument("--effort", default="balanced")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=0, help="training rows; 0: all")
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args(arguments)
    work = partial(compare, effort=args.effort, seed=args.seed, rows=args.rows)
    if args.jobs == 1:
        found = list(map(work, args.sets))
    else:
        with ProcessPoolExecutor(args.jobs) as pool:
            found = list(pool.map(work, args.sets))
    print(format_outcomes(found))
    return 0
