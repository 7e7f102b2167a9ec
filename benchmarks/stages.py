"""What each stage of a default fit pays: test NLL and CPU seconds, relative to `effort="fast"`.

The parts of a pool are computed once per split, and every pool is then made of them. Confidence far away is the mean largest
probability of rows drawn with six times the spread of the columns. docs/decisions/0039 has the table of 24 sets.

With `--change`, what constants of `options/policy.py` pay instead: each fit is repeated with them changed, and compared with the
same fit as it is and with HistGradientBoosting. docs/decisions/0065, 0054 and 0055 have tables of such changes.

    python benchmarks/stages.py --sets wine glass --seeds 1000 1001 [--jobs 2] [--data FOLDER]
    python benchmarks/stages.py --sets wine glass --change "RELEARN_ROWS['balanced'] = 0" --change "LBFGS_EPOCHS = 6; FOLDS = 5" \
        [--effort fast] [--rows 4000]
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `experiments`

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier

from cavity import GPClassifier, Training
from cavity.options import policy
from cavity.prediction.pool import fit_weights, normalised
from cavity.rows.splitting import choose_folds
from experiments.sets import split

MOST_ROWS, FAR_ROWS, FOLDS = 2000, 200, 3
EFFORTS = ("fast", "balanced", "best")
LEAST = 1e-9
TREES: dict[str, Callable[[], Any]] = {
    "boosting 100": partial(HistGradientBoostingClassifier, early_stopping=False, random_state=0),
    "boosting 50": partial(HistGradientBoostingClassifier, max_iter=50, early_stopping=False, random_state=0),
    "forest 200": partial(ExtraTreesClassifier, 200, max_leaf_nodes=4096, random_state=0),
    "drawn 100": partial(ExtraTreesClassifier, 100, bootstrap=True, oob_score=True, random_state=0),
}
POOLS = {
    "leave-one-out, boosting 100, forest 200": ("leave-one-out", "boosting 100", "forest 200"),
    "fixed folds, boosting 100, forest 200": ("fixed folds", "boosting 100", "forest 200"),
    "fixed folds, boosting 50, drawn 100": ("fixed folds", "boosting 50", "drawn 100"),
    "fixed folds, boosting 50": ("fixed folds", "boosting 50"),
    "fixed folds, drawn 100": ("fixed folds", "drawn 100"),
    "fixed folds": ("fixed folds",),
}


class Task(NamedTuple):
    """A split of a set, and what is measured on it."""

    name: str
    seed: int
    data: str | None
    rows: int = MOST_ROWS
    effort: str = "balanced"
    changes: tuple[str, ...] = ()


def measure(task: Task) -> dict[str, tuple[float, float, float]]:
    """Return test NLL, seconds and confidence far away of each stage, or of each change, on one split."""
    warnings.simplefilter("ignore")
    data, rng = split(task.name, task.seed, task.data), np.random.default_rng(task.seed)
    X, y, X_test, y_test = data.X[: task.rows], data.y[: task.rows], data.X_test, data.y_test
    classes, y = np.unique(y, return_inverse=True)
    known = np.isin(y_test, classes)
    X_test, y_test = X_test[known], np.searchsorted(classes, y_test[known])
    far = X.mean(0) + 6 * X.std(0) * rng.normal(size=(FAR_ROWS, X.shape[1]))

    def fit(model: Any) -> tuple[float, float, float]:
        begin = time.process_time()
        model.fit(X, y)
        seconds = time.process_time() - begin
        test, away = (np.log(np.maximum(model.predict_proba(rows), LEAST)) for rows in (X_test, far))
        return score(test, y_test, seconds, away)

    if task.changes:
        toy = rng.normal(size=(60, 2))
        GPClassifier(random_state=0).fit(toy, toy[:, 0] > 0)  # imports and first calls
        boosting = HistGradientBoostingClassifier(early_stopping=min(np.bincount(y)) > 1, random_state=0)
        found = {"as it is": (0.0, 0.0, 0.0), "HistGradientBoosting": fit(boosting)}
        for change in ("", *task.changes):
            with changed_policy(change):
                found[change or "as it is"] = fit(GPClassifier(effort=task.effort, random_state=0))
        return found
    found = {f'effort="{effort}"': fit(GPClassifier(effort=effort, random_state=0)) for effort in EFFORTS}
    parts = make_parts(X, y, X_test, far)
    for pool, members in POOLS.items():
        logs = [parts[member] for member in members]
        weights = fit_weights([held for held, *_ in logs], y, np.ones(len(y)))
        test, away = (
            normalised(sum(w * log[i] for w, log in zip(weights, logs, strict=True))) for i in (1, 2)
        )
        found[f"pool: {pool}"] = score(test, y_test, sum(log[3] for log in logs), away)
    return found


@contextmanager
def changed_policy(change: str) -> Iterator[None]:
    """Execute assignments among the constants of `options/policy.py`, and undo them at the end."""
    kept = {name: copy(value) for name, value in vars(policy).items() if name.isupper()}
    exec(change, vars(policy))
    yield
    vars(policy).update(kept)


def score(log_p: np.ndarray, y: np.ndarray, seconds: float, far: np.ndarray) -> tuple[float, float, float]:
    return float(-log_p[np.arange(len(y)), y].mean()), seconds, float(np.exp(far).max(1).mean())


def make_parts(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, far: np.ndarray) -> dict[str, Any]:
    """Return log-probabilities of training rows that the part did not see, of test rows and of far rows, and its seconds."""
    fold = choose_folds(X, y, FOLDS, 0)
    begin = time.process_time()
    gp = GPClassifier(effort="fast", calibration=None, random_state=0).fit(X, y)
    first = time.process_time() - begin
    new = gp.predict_log_proba(X_test), gp.predict_log_proba(far)
    fixed = Training(learn=(), noise=gp.noise_, tol=1e-2)
    options = {"kernel": gp.kernel_, "inducing": gp.inducing_points_, "max_epochs": 5, "training": fixed}
    again, seconds = hold_out(partial(GPClassifier, calibration=None, random_state=0, **options), X, y, fold)
    found = {"leave-one-out": (gp.loo_log_proba_, *new, first), "fixed folds": (again, *new, first + seconds)}
    for name, make in TREES.items():
        begin = time.process_time()
        trees = make().fit(X, y)
        first = time.process_time() - begin
        if hasattr(trees, "oob_decision_function_"):
            held, seconds = np.nan_to_num(trees.oob_decision_function_, nan=1 / (y.max() + 1)), 0.0
            held = np.log(np.maximum(held, LEAST))
        else:
            held, seconds = hold_out(make, X, y, fold)
        test, away = (np.log(np.maximum(trees.predict_proba(rows), LEAST)) for rows in (X_test, far))
        found[name] = held, test, away, first + seconds
    return found


def hold_out(
    make: Callable[[], Any], X: np.ndarray, y: np.ndarray, fold: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return log-probabilities of each fold from a fit without it, and the seconds of these fits."""
    found = np.full((len(y), y.max() + 1), np.log(1 / (y.max() + 1)))
    begin = time.process_time()
    for i in range(FOLDS):
        p = make().fit(X[fold != i], y[fold != i]).predict_proba(X[fold == i])
        found[fold == i] = np.log(np.maximum(p, LEAST))
    return found, time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=["wine", "glass", "vehicle"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1000])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--data")
    parser.add_argument(
        "--change", action="append", default=[], help="assignments to constants of the policy"
    )
    parser.add_argument("--effort", default="balanced", help="of the fits with --change")
    parser.add_argument("--rows", type=int, default=MOST_ROWS, help="most training rows")
    args = parser.parse_args()
    rest = args.data, args.rows, args.effort, tuple(args.change)
    tasks = [Task(name, seed, *rest) for seed in args.seeds for name in args.sets]
    base = "as it is" if args.change else 'effort="fast"'
    with get_context("spawn").Pool(args.jobs) as pool:
        rows = list(pool.imap_unordered(measure, tasks, chunksize=1))
    print(f"{len(rows)} splits; geometric means relative to {base}, standard error of the NLL\n")
    print("| stage | NLL | | seconds | far |\n|---|---|---|---|---|")
    for stage in rows[0]:
        ratio = np.log([np.divide(row[stage][:2], row[base][:2]) for row in rows])
        nll, seconds = np.exp(ratio.mean(0))
        error, far = nll * ratio[:, 0].std() / np.sqrt(len(rows)), np.mean([row[stage][2] for row in rows])
        print(f"| {stage} | {nll:.3f} | {error:.3f} | {seconds:.2f} | {far:.2f} |")


if __name__ == "__main__":
    main()
