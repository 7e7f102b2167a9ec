"""Prediction: rows per second, latency of one row, many classes, and a model on a GPU.

Each row shows the figure of this run, the figure recorded at commit edc1c98, the goal, and the ratio to the earlier figure. With
--earlier DIR, a checkout of that commit, the same models and rows are also measured with the earlier code in this run, in turns;
then the ratio is to that. The digits model has 10 classes and M = 100; the other has 100 classes, 3,000 x 4.

    python benchmarks/predict.py [--earlier DIR] [--threads 2] [--rounds 5] [--csv FILE]

Rows go to benchmarks/results/predict.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "predict.csv"
FIELDS = "what unit now earlier source goal ratio threads machine".split()
# what: unit, figure recorded at edc1c98 on two ARM cores, goal
ROWS = {
    "digits, 10,000 rows, predict_proba": ("rows/s", 6700.0, 40_000.0),
    "digits, 10,000 rows, predict": ("rows/s", 6700.0, 40_000.0),
    "digits, one row, predict_proba": ("ms", 2.9, 0.5),
    "100 classes, 3,000 rows, predict_proba": ("rows/s", 1000.0, 10_000.0),
    "MNIST-sized, M = 500, 10,000 rows, after a fit on a GPU": ("s", 3.8, 0.05),
}


def fit_models() -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """Fit both models; return each with the rows that it predicts. Every version of the code fits its own, with the same seed."""
    from sklearn.datasets import load_digits

    from cavity import GPClassifier

    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    labels = np.arange(3000) % 100
    many = 2 * rng.standard_normal((100, 4))[labels] + 0.3 * rng.standard_normal((3000, 4))
    rows = np.resize(X, (10_000, 64)) + 0.5 * rng.standard_normal((10_000, 64))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        digits = GPClassifier(n_inducing=100, max_epochs=5, random_state=0, device="cpu")
        digits.fit(X[:1000], y[:1000])
        hundred = GPClassifier("sep", batch_size=500, max_epochs=1, random_state=0, device="cpu")
        hundred.fit(many, labels)
    return digits, rows, hundred, many


def fastest(call: Callable[[], Any], rounds: int) -> float:
    """Seconds of the fastest call, after one to warm up."""
    call()
    seconds = []
    for _ in range(rounds):
        begun = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


def measure(rounds: int) -> dict[str, float]:
    """Return every figure that this version of the code and this machine have."""
    import torch

    digits, X, hundred, many = fit_models()
    one = X[:1].copy()
    names = list(ROWS)
    found = {
        names[0]: len(X) / fastest(lambda: digits.predict_proba(X), rounds),
        names[1]: len(X) / fastest(lambda: digits.predict(X), rounds),
        names[2]: 10 * fastest(lambda: [digits.predict_proba(one) for _ in range(100)], rounds),
        names[3]: len(many) / fastest(lambda: hundred.predict_proba(many), rounds),
    }
    if torch.cuda.is_available():
        found[names[4]] = measure_gpu(rounds)
    return found


def measure_gpu(rounds: int) -> float:
    """Seconds of 10,000 rows of 784 features after a fit on a GPU, rows from and to the CPU."""
    import torch

    from cavity import GPClassifier

    rng = np.random.default_rng(0)
    centers = rng.standard_normal((10, 784))
    y = np.arange(20_000) % 10
    X = 0.2 * centers[y] + rng.standard_normal((20_000, 784))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf = GPClassifier("ep", n_inducing=500, max_epochs=1, batch_size=2000, device="cuda", random_state=0)
        clf.fit(X, y)

    def predict() -> None:
        clf.predict_proba(X[:10_000])
        torch.cuda.synchronize()

    return fastest(predict, rounds)


def run_in(source: Path, args: argparse.Namespace) -> dict[str, float]:
    """Measure in a process of its own, with the code of one checkout."""
    threads = {"OMP_NUM_THREADS": str(args.threads), "PYTHONPATH": str(source / "src")}
    command = [sys.executable, __file__, "--measure", "--rounds", str(args.rounds)]
    done = subprocess.run(command, env=os.environ | threads, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def better(unit: str, first: float, second: float) -> float:
    """How many times better the first figure is: rates are large, times small."""
    return first / second if unit == "rows/s" else second / first


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--earlier", type=Path, help="a checkout of edc1c98, measured in the same run")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--csv", type=Path, default=RESULTS)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.rounds)))
        return
    here = Path(__file__).parents[1]
    turns = [(run_in(here, args), args.earlier and run_in(args.earlier, args)) for _ in range(2)]
    table = []
    for what, (unit, recorded, goal) in ROWS.items():
        best = max if unit == "rows/s" else min
        if what not in turns[0][0]:
            print(f"{what}: not measured, no GPU here")
            continue
        now = best(turn[0][what] for turn in turns)
        same_run = args.earlier is not None and what in turns[0][1]
        earlier = best(turn[1][what] for turn in turns) if same_run else recorded
        source = "edc1c98, this run" if same_run else "edc1c98, recorded"
        ratio = better(unit, now, earlier)
        values = (what, unit, now, earlier, source, goal, ratio, args.threads, platform.machine())
        table.append(dict(zip(FIELDS, values, strict=True)))
        print(
            f"{what}: {now:.4g} {unit}; {source} {earlier:.4g}; {ratio:.1f} times better; goal {goal:g}",
            flush=True,
        )
    with args.csv.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(
            {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in table
        )
    print(f"wrote {args.csv}")


if __name__ == "__main__":
    main()
