"""What users wait for: class weights, hyper-parameter sampling, and the start of the command line.

Each row prints the figure of this run, the figure of an earlier version (commit edc1c98), and the ratio. Seconds are CPU seconds of
one core, so other processes do not count. The vehicle data are those of the comparison (CAVITY_DATA names their folder).

    python benchmarks/waiting.py [weights] [sampling] [startup] [--draws 20] [--csv FILE]
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import csv
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `experiments`

import numpy as np
import torch
from sklearn.datasets import load_iris

from cavity import GPClassifier, Training
from cavity.options import nest
from experiments import sets
from experiments.jobs import versions

RESULTS = Path(__file__).parent / "results"


class Figure(NamedTuple):
    """One measurement next to the earlier one."""

    what: str
    today: float
    earlier: float
    wanted: str


def measure(call: Callable[[], object]) -> float:
    """Return the CPU seconds of a call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def time_weights(draws: int) -> Iterator[Figure]:
    """Fit vehicle with and without class weights, in turns; the smallest time of each counts."""
    X, y = sets.load("vehicle", None)
    options = {"n_inducing": 20, "max_epochs": 20, "tol": 0.0, "random_state": 0}
    seconds: dict[str | None, list[float]] = {None: [], "balanced": []}
    for _ in range(4):
        for how, found in seconds.items():
            model = GPClassifier("ep", **nest(class_weight=how, **options))
            found.append(measure(lambda model=model: model.fit(X, y)))  # type: ignore[misc]
    ratio = min(seconds["balanced"]) / min(seconds[None])
    yield Figure("class_weight: times the unweighted fit", ratio, 16.0, "1.3")


def time_sampling(draws: int) -> Iterator[Figure]:
    """Draw hyper-parameters of a model of 30 rows of iris, with as many warm-up draws, in two chains."""
    X, y = load_iris(return_X_y=True)
    X, y = X[::5], y[::5]
    model = GPClassifier(n_inducing=5, random_state=0).fit(X, y)
    start = time.process_time()
    found = model.sample_hyperparameters(X, y, n_samples=draws, warmup=draws, random_state=0)
    seconds = time.process_time() - start
    yield Figure(
        f"sampling: milliseconds per draw, {draws} + {draws}", 1e3 * seconds / (2 * draws), 94e3 / 40, "25"
    )
    yield Figure("sampling: acceptance", found.acceptance, 0.01, "0.6 to 0.9")
    yield Figure("sampling: divergent trajectories", found.divergences, np.nan, "0")


def time_startup(draws: int) -> Iterator[Figure]:
    """Describe a small model and predict ten rows with it, each as a process of its own."""
    X, y = load_iris(return_X_y=True)
    with tempfile.TemporaryDirectory() as folder:
        path, table = Path(folder) / "iris.cavity", Path(folder) / "new.csv"
        GPClassifier(n_inducing=5, max_epochs=5, training=Training(tol=1.0), random_state=0).fit(X, y).save(
            path
        )
        np.savetxt(table, X[:10], delimiter=",", header="a,b,c,d", comments="")
        yield Figure("cavity info: seconds", _time_command("info", str(path)), 4.1, "0.5")
        yield Figure(
            "cavity predict, ten rows: seconds",
            _time_command("predict", str(path), str(table)),
            np.nan,
            "1.5",
        )


def _time_command(*arguments: str) -> float:
    """Return the smallest CPU seconds of three runs of a command."""
    found = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "cavity", *arguments], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


PARTS = {"weights": time_weights, "sampling": time_sampling, "startup": time_startup}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which to measure (default: all)")
    parser.add_argument("--draws", type=int, default=20, help="and as many to warm up, in each chain")
    parser.add_argument("--csv", type=Path, default=RESULTS / "waiting.csv")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    figures = [figure for part in chosen.parts or PARTS for figure in PARTS[part](chosen.draws)]
    print(f"{'':52}{'today':>10}{'earlier':>10}{'ratio':>8}  wanted")
    for what, today, earlier, wanted in figures:
        print(f"{what:52}{today:>10.3g}{earlier:>10.3g}{today / earlier:>8.2f}  {wanted}")
    with chosen.csv.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*Figure._fields, "versions"])
        writer.writerows(
            [what, f"{today:.4g}", f"{earlier:.4g}", wanted, versions()]
            for what, today, earlier, wanted in figures
        )


if __name__ == "__main__":
    main()
