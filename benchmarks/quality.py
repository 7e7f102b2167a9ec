"""Test NLL and error on the papers' tables, beside the published numbers.

Splits as in section 4.1 of the ICML paper: 90 % of the rows for training (satellite 20 %; waveform 1000 rows, 30 %), M a share
of the training rows, 250 iterations on full batches, 20 splits (satellite 5). Tables come from --data, $CAVITY_DATA or OpenML.

    python benchmarks/quality.py [--data FOLDER] [--methods ep sep | all] [--sets wine ...] [--splits 20] [--jobs 2] [--csv FILE]

--flip 0.1 redraws that share of the training labels uniformly over the classes (the test rows stay clean).
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import sys
import time
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread a worker: the jobs share the cores

import numpy as np

SETS = ["wine", "new_thyroid", "svmguide2", "glass", "waveform", "vowel6", "vehicle", "satellite"]
PUBLISHED = Path(__file__).with_name("published.csv")

# What each name means; the papers' VI steps q by its gradient with L-BFGS, and their GFITC uses L-BFGS too.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "ep": ("ep", {}),
    "sep": ("sep", {}),
    "ep_outer": ("ep", {"schedule": "outer"}),
    "rep": ("rep", {}),
    "rep_tied": ("rep", {"sites": "tied"}),
    "rep_learnt": ("rep", {"learn": ("kernel", "noise", "inducing", "epsilon")}),
    "pep": ("pep", {}),
    "gfitc": ("gfitc", {"tol": 1e-4}),  # its epochs are long, and L-BFGS has long converged
    "vi": ("vi", {"q_update": "gradient"}),
    "vi_natural": ("vi", {"q_update": "natural"}),
    "vi_softmax": ("vi", {"q_update": "gradient", "likelihood": "softmax"}),
}
COMPARED = ["ep", "sep", "rep", "pep", "vi", "vi_natural", "vi_softmax", "gfitc"]


class Split(NamedTuple):
    """Rows to train on and rows to judge by."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def split(name: str, seed: int, data_home: str | None) -> Split:
    """One random split, as in the paper."""
    from cavity.data.tables import load

    table = load(name, data_home)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(table.y))[: 1000 if name == "waveform" else None]
    share = {"satellite": 0.2, "waveform": 0.3}.get(name, 0.9)
    cut = round(share * len(order))
    train, test = order[:cut], order[cut:]
    return Split(table.X[train], table.y[train], table.X[test], table.y[test])


def flipped(data: Split, share: float, seed: int) -> Split:
    """A share of the training labels redrawn uniformly over all classes, the true one included: ε = share."""
    rng = np.random.default_rng([seed, 1])
    redrawn = rng.random(len(data.y)) < share
    return data._replace(y=np.where(redrawn, rng.choice(np.unique(data.y), len(data.y)), data.y))


def evaluate(
    name: str, seed: int, method: str, m: float, flip: float, data_home: str | None, options: dict[str, Any]
) -> dict[str, Any]:
    """Train on one split and judge."""
    import torch

    from cavity import GPClassifier

    torch.set_num_threads(1)
    data = flipped(split(name, seed, data_home), flip, seed)
    kind, own = METHODS[method]
    settings = {
        "n_inducing": m,
        "batch_size": None,
        "max_epochs": 250,
        "tol": 0.0,
        "random_state": seed,
        **own,
        **options,
    }
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf = GPClassifier(kind, **settings).fit(data.X, data.y)
    seconds = time.perf_counter() - begin
    column = {label: i for i, label in enumerate(clf.classes_)}
    known = np.array([label in column for label in data.y_test])
    log_p = clf.predict_log_proba(data.X_test)
    true = np.array(
        [log_p[i, column[label]] if label in column else -np.inf for i, label in enumerate(data.y_test)]
    )
    return {
        "dataset": name,
        "split": seed,
        "method": method,
        "m_percent": round(100 * m),
        "nll": float(-true[known].mean()),
        "error": float((clf.classes_[log_p.argmax(1)] != data.y_test).mean()),
        "seconds": seconds,
        "epochs": clf.n_epochs_,
        "repairs": sum(row["repairs"] for row in clf.history_),
        "unseen": int((~known).sum()),
        "flip": flip,
        "epsilon": getattr(clf, "epsilon_", math.nan),
    }


def published(m_percent: int) -> dict[tuple[str, str], tuple[float, float, float]]:
    """(data set, method) → NLL, its standard error, error rate: the ICML paper, and the thesis for what only it has."""
    table: dict[tuple[str, str], tuple[float, float, float]] = {}
    with PUBLISHED.open() as file:
        for r in csv.DictReader(file):
            key = (r["dataset"], r["method"])
            if r["m_percent"] != str(m_percent) or (key in table and r["source"] != "icml2017"):
                continue
            root = math.sqrt(20) if r["spread"].startswith("std") else 1.0
            table[key] = (float(r["nll"]), float(r["nll_spread"] or "nan") / root, float(r["error"] or "nan"))
    return table


def summary(rows: list[dict[str, Any]], m_percent: int, clean: bool) -> None:
    """Ours beside the published numbers, with the difference in standard errors.

    `ok`: mean ≤ published + √(se² + se²) + 0.005; `2se`: within twice that root, or better.
    """
    theirs = published(m_percent) if clean else {}
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["dataset"], row["method"]].append(row)
    head = f"\n{'data set':12} {'method':10} {'splits':>6} {'NLL':>7} {'se':>6} {'published':>9} {'se':>5} {'':>4} "
    print(head + f"{'error':>6} {'publ.':>6} {'epsilon':>8} {'seconds':>8} {'repairs':>7}")
    order = list(METHODS)
    for (name, method), group in sorted(
        groups.items(), key=lambda item: (SETS.index(item[0][0]), order.index(item[0][1]))
    ):
        nll = np.array([row["nll"] for row in group])
        se = nll.std(ddof=1) / math.sqrt(len(nll)) if len(nll) > 1 else 0.0
        mean = {
            key: float(np.mean([row[key] for row in group]))
            for key in ("error", "seconds", "repairs", "epsilon")
        }
        value, spread, error = theirs.get((name, method.removesuffix("_natural")), (math.nan,) * 3)
        root = math.hypot(se, spread)
        verdict = (
            "ok"
            if nll.mean() <= value + root + 0.005
            else "2se"
            if nll.mean() <= value + 2 * root
            else "over"
        )
        print(
            f"{name:12} {method:10} {len(nll):6d} {nll.mean():7.4f} {se:6.4f} {value:9.2f} {spread:5.2f} "
            f"{'' if math.isnan(value) else verdict:>4} {mean['error']:6.3f} {error:6.2f} {mean['epsilon']:8.4f} "
            f"{mean['seconds']:8.2f} {mean['repairs']:7.1f}"
        )


def paired(rows: list[dict[str, Any]]) -> None:
    """EP minus SEP on the same splits, with the standard error of the paired difference."""
    nll = {(row["dataset"], row["split"], row["method"]): row["nll"] for row in rows}
    print(f"\n{'data set':12} {'EP - SEP':>9} {'se':>7}")
    for name in SETS:
        seeds = [s for (d, s, m) in nll if d == name and m == "ep" and (d, s, "sep") in nll]
        if len(seeds) > 1:
            gap = np.array([nll[name, s, "ep"] - nll[name, s, "sep"] for s in seeds])
            print(f"{name:12} {gap.mean():9.4f} {gap.std(ddof=1) / math.sqrt(len(gap)):7.4f}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="folder with the tables (default: $CAVITY_DATA)")
    parser.add_argument(
        "--methods",
        nargs="+",
        default=["ep", "sep"],
        choices=[*METHODS, "all"],
        help=f"all: {' '.join(COMPARED)}",
    )
    parser.add_argument(
        "--flip", type=float, default=0.0, help="share of training labels to redraw at random"
    )
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument(
        "--m", type=float, default=0.1, help="inducing points, as a share of the training rows"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--csv", help="write a row a fit")
    parser.add_argument(
        "--read", nargs="+", metavar="FILE", help="show rows of earlier runs instead of fitting"
    )
    parser.add_argument(
        "--option",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "VALUE"),
        help="a GPClassifier argument",
    )
    return parser.parse_args()


def main() -> None:
    args = parse()
    if args.read:
        rows = [number(row) for path in args.read for row in csv.DictReader(Path(path).open())]
        summary(rows, round(100 * args.m), clean=not any(row.get("flip") for row in rows))
        return paired(rows)
    options = {name: _literal(value) for name, value in args.option}
    jobs = [
        (n, s, m)
        for n in args.sets
        for s in range(min(args.splits, 5) if n == "satellite" else args.splits)
        for m in (COMPARED if "all" in args.methods else args.methods)
    ]
    jobs.sort(key=lambda job: -SETS.index(job[0]))  # the long ones first
    rows = []
    with ProcessPoolExecutor(args.jobs) as pool, Record(args.csv) as record:
        waiting = [pool.submit(evaluate, n, s, m, args.m, args.flip, args.data, options) for n, s, m in jobs]
        for done, future in enumerate(as_completed(waiting), 1):
            rows.append(future.result())
            record(rows[-1])
            print(f"\r{done}/{len(jobs)} fits", end="", file=sys.stderr, flush=True)
    summary(rows, round(100 * args.m), clean=args.flip == 0)
    paired(rows)


def number(row: dict[str, str]) -> dict[str, Any]:
    """A row of a CSV file with its numbers as numbers."""
    texts = ("dataset", "method")
    return {"epsilon": math.nan} | {k: v if k in texts else float(v) for k, v in row.items()}


class Record:
    """A row a fit, written as it comes and sorted at the end, so that an interrupted run keeps what it has."""

    def __init__(self, path: str | None) -> None:
        self.path, self.rows = path, []  # type: ignore[var-annotated]

    def __enter__(self) -> Record:
        return self

    def __call__(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        self._write(self.rows)

    def __exit__(self, *error: object) -> None:
        self._write(sorted(self.rows, key=lambda r: (r["dataset"], r["method"], r["split"])))

    def _write(self, rows: list[dict[str, Any]]) -> None:
        if self.path and rows:
            with open(self.path, "w", newline="") as file:
                writer = csv.DictWriter(file, rows[0].keys())
                writer.writeheader()
                writer.writerows(rows)


def _literal(value: str) -> Any:
    import ast

    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value


if __name__ == "__main__":
    main()
