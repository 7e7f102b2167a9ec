"""Do named methods end near their optimum? [decision 67]

    python benchmarks/convergence.py --jobs 16

Thirty fits, of six methods on five tables, then go on for ten times as many epochs; the
law is a gain of at most 1e-3 nats per hundred rows. Then ten splits of wine by EP with
inducing points at 5 % of the rows: log Z_q against version 0.1.0. One thread per fit;
about three minutes on sixteen cores. The exit code is 1 if a fit misses its law.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
os.environ |= dict.fromkeys(THREADS, "1")
ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "tests")]

LAW = 1e-5  # nats per row
METHODS = ("ep", "pep", "rep", "gfitc", "vi", "laplace")
TABLES = ("two classes", "three classes", "four classes", "iris", "wine")
LIMIT = 150.0  # seconds of the longer run
# log Z_q of wine by EP, M = 5 %, splits 0 to 9: rows of cavity 0.1.0
WINE = (-21.546, -22.048, -20.494, -21.132, -20.307, -20.967, -21.223, -21.281, -19.384,
        -20.967)  # fmt: skip


class Found(NamedTuple):
    """One fit."""

    objective: float
    evidence: float
    epochs: int
    seconds: float  # of the processor
    late: bool  # the limit of seconds ended it


def read_table(name: str) -> tuple[Any, Any]:
    from sklearn.datasets import load_iris, load_wine

    from support import toy

    if name in ("iris", "wine"):
        load = {"iris": load_iris, "wine": load_wine}[name]
        X, y = load(return_X_y=True)
        return X[::3], y[::3]

    rows = {"two classes": (40, 2), "three classes": (60, 3), "four classes": (60, 4)}
    return toy(*rows[name])


def fit(method: str, X: Any, y: Any, n_inducing: float, **changed: Any) -> Found:
    """Fit a named method, with another plan of training if values are given."""
    from cavity import GPClassifier
    from cavity.fitting import planning
    from cavity.fitting.options.policy.training import plan_training

    planning.plan_training = lambda *a: replace(plan_training(*a), **changed)
    begin = time.process_time()
    clf = GPClassifier(method, n_inducing=n_inducing, random_state=0, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf.fit(X, y)
    seconds = time.process_time() - begin
    end = clf.history_[-1]
    late = seconds > changed.get("max_seconds", float("inf"))
    return Found(end["objective"], end["log_evidence"], clf.n_epochs_, seconds, late)


def measure(case: tuple[str, str]) -> tuple[str, bool]:
    """Return a line about a case, and whether it meets its law."""
    method, name = case
    if method == "split":
        return measure_wine(int(name))

    X, y = read_table(name)
    usual = fit(method, X, y, 5)
    longer = fit(
        method, X, y, 5, tol=0.0, max_epochs=10 * usual.epochs, max_seconds=LIMIT
    )
    gain = max(0.0, longer.objective - usual.objective) / len(y)
    meets = gain <= LAW and not longer.late
    epochs = f"{usual.epochs} → {longer.epochs} epochs"
    cut = ", cut short" if longer.late else ""
    text = (
        f"{100 * gain:.1e} nats per 100 rows; {epochs}, {usual.seconds:.1f} CPU s{cut}"
    )
    return f"{method:8} {name:14} {text}", meets


def measure_wine(number: int) -> tuple[str, bool]:
    """Compare a split of wine with version 0.1.0."""
    from experiments.sets import split

    data = split("wine", number)
    found = fit("ep", data.X, data.y, 0.05)
    text = f"log Z_q {found.evidence:.3f}, in 0.1.0 {WINE[number]:.3f}"
    text += f"; {found.epochs} epochs, {found.seconds:.1f} CPU s"
    return f"wine     split {number}        {text}", found.evidence >= WINE[number]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1)
    jobs = parser.parse_args().jobs
    splits = [("split", str(number)) for number in range(len(WINE))]
    fits = list(product(METHODS, TABLES))
    met = {True: 0, False: 0}
    met_wine = 0
    with get_context("spawn").Pool(jobs) as pool:
        cases = [*reversed(fits), *splits]
        for text, meets in pool.imap_unordered(measure, cases):
            print(f"{'ok    ' if meets else 'MISSED'} {text}", flush=True)
            if text.startswith("wine  "):
                met_wine += meets
            else:
                met[meets] += 1

    print(f"{met[True]} of {len(fits)} fits meet the law")
    print(f"{met_wine} of {len(WINE)} splits of wine are at least as high as 0.1.0")
    return int(met[False] > 0 or met_wine < len(WINE))


if __name__ == "__main__":
    sys.exit(main())
