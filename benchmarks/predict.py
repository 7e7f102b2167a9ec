"""What users wait for after a fit: predictions, the start of the command line, and
sampling of hyper-parameters.

The digits model has 10 classes and M = 100; the other has 100 classes, 3,000 x 4. Of
every figure the best of some rounds counts. Commands and sampling are in CPU seconds,
so other processes do not count.

    python benchmarks/predict.py [--threads 2] [--rounds 5] [--csv FILE]

Rows go to benchmarks/results/predict.csv.
"""

from __future__ import annotations

import argparse
import csv
import platform
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits, load_iris

from cavity import GPClassifier

RESULTS = Path(__file__).parent / "results" / "predict.csv"
FIELDS = "what unit now goal threads machine".split()
DRAWS = 20  # and as many to warm up, in each of two chains
Figure = tuple[str, str, float, float]  # what, unit, now, goal


def fastest(
    call: Callable[[], Any], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds of the fastest call, after one to warm up."""
    call()
    seconds = []
    for _ in range(rounds):
        begun = clock()
        call()
        seconds.append(clock() - begun)
    return min(seconds)


def measure_predictions(rounds: int) -> Iterator[Figure]:
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    rows = np.resize(X, (10_000, 64)) + 0.5 * rng.standard_normal((10_000, 64))
    digits = GPClassifier(
        n_inducing=100, max_epochs=5, random_state=0, device="cpu"
    ).fit(X[:1000], y[:1000])
    for name in ("predict_proba", "predict"):
        seconds = fastest(partial(getattr(digits, name), rows), rounds)
        yield f"digits, 10,000 rows, {name}", "rows/s", len(rows) / seconds, 4e4
    one = rows[:1].copy()
    seconds = fastest(lambda: [digits.predict_proba(one) for _ in range(100)], rounds)
    yield "digits, one row, predict_proba", "ms", 10 * seconds, 0.5
    labels = np.arange(3000) % 100
    many = 2 * rng.standard_normal((100, 4))[labels] + 0.3 * rng.standard_normal(
        (3000, 4)
    )
    hundred = GPClassifier(
        "sep", batch_size=500, max_epochs=1, random_state=0, device="cpu"
    ).fit(many, labels)
    rate = len(many) / fastest(lambda: hundred.predict_proba(many), rounds)
    yield "100 classes, 3,000 rows, predict_proba", "rows/s", rate, 1e4


def measure_gpu(rounds: int) -> Iterator[Figure]:
    """10,000 rows of 784 features after a fit on a GPU, rows from and to the CPU."""
    if not torch.cuda.is_available():
        return
    rng = np.random.default_rng(0)
    y = np.arange(20_000) % 10
    X = 0.2 * rng.standard_normal((10, 784))[y] + rng.standard_normal((20_000, 784))
    clf = GPClassifier(
        "ep",
        n_inducing=500,
        max_epochs=1,
        batch_size=2000,
        device="cuda",
        random_state=0,
    ).fit(X, y)
    seconds = fastest(
        lambda: (clf.predict_proba(X[:10_000]), torch.cuda.synchronize()), rounds
    )
    yield "MNIST-sized, M = 500, 10,000 rows, after a fit on a GPU", "s", seconds, 0.05


def measure_commands(rounds: int) -> Iterator[Figure]:
    """Describe a small model and predict ten rows with it, each as a process of its
    own.
    """

    def spent() -> float:
        return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])

    X, y = load_iris(return_X_y=True)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/iris.cavity"
        table = f"{folder}/new.csv"
        GPClassifier(n_inducing=5, max_epochs=5, random_state=0).fit(X, y).save(path)
        np.savetxt(table, X[:10], delimiter=",", header="a,b,c,d", comments="")
        for what, arguments, goal in (
            ("cavity info", ["info", path], 0.5),
            ("cavity predict, ten rows", ["predict", path, table], 0.9),
        ):
            command = [sys.executable, "-m", "cavity", *arguments]
            call = partial(
                subprocess.run, command, check=True, stdout=subprocess.DEVNULL
            )
            yield what, "CPU s", fastest(call, rounds, spent), goal


def measure_sampling(rounds: int) -> Iterator[Figure]:
    """Draw hyper-parameters of a model of 30 rows of iris."""
    X, y = (part[::5] for part in load_iris(return_X_y=True))
    model = GPClassifier(n_inducing=5, random_state=0).fit(X, y)
    begun = time.process_time()
    model.sample_hyperparameters(X, y, n_samples=DRAWS, warmup=DRAWS, random_state=0)
    each = 1e3 * (time.process_time() - begun) / (2 * DRAWS)
    yield f"sampling, {DRAWS} + {DRAWS}", "CPU ms per draw", each, 75.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--csv", type=Path, default=RESULTS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    warnings.simplefilter("ignore")
    with args.csv.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        for measure in (
            measure_predictions,
            measure_gpu,
            measure_commands,
            measure_sampling,
        ):
            for what, unit, now, goal in measure(args.rounds):
                writer.writerow(
                    [
                        what,
                        unit,
                        f"{now:.4g}",
                        f"{goal:g}",
                        args.threads,
                        platform.machine(),
                    ]
                )
                print(f"{what}: {now:.4g} {unit}; goal {goal:g}", flush=True)


if __name__ == "__main__":
    main()
