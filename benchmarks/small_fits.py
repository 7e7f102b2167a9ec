"""Seconds and test NLL of fits of small tables with effort="fast", next to gradient boosting in the same run.

The peers are HistGradientBoosting and, if it is installed, LightGBM, with their default settings and the same threads. A row is
the mean over random splits (80 % of the rows for training; 2,000 rows of waveform and satellite), the ratio is that of the times
to HistGradientBoosting. Two more rows: 100 classes, and a fit on a machine with other work, which is timed against the same fit
without it.

    python benchmarks/small_fits.py --data FOLDER [--splits 3] [--threads 2] [--sets wine glass] [--csv FILE]

Many classes alone need no data. 1,000 classes of 100 rows are fitted for --seconds, saved, loaded and predicted, without a peer;
peak memory is printed:

    python benchmarks/small_fits.py --sets "100 classes" "1,000 classes" --seconds 300 --csv FILE
"""

from __future__ import annotations

import argparse
import csv
import math
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `experiments`

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

import cavity
from cavity import GPClassifier, Training
from cavity.report import nll
from experiments.paper_tables import load

SETS = ("wine", "new_thyroid", "glass", "svmguide2", "vowel6", "vehicle", "waveform", "satellite")
TRAIN_ROWS = {"waveform": 2000, "satellite": 2000}
FIRST_SEED = 1000  # no published split has such a number
LOAD = 6  # busy processes of the loaded machine
MANY = 100  # classes
CROWDED = 1000  # classes, of 100 rows each
CLASSES = ("100 classes", "1,000 classes")  # rows of generated tables that --sets may name
EFFORT = "fast"
RESULTS = Path(__file__).parent / "results" / "small_fits.csv"


class Split(NamedTuple):
    """Standardised training rows and test rows."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any


class Row(NamedTuple):
    """One row of the table."""

    what: str
    rows: int
    seconds: float
    nll: float
    peer_seconds: float
    peer_nll: float
    lightgbm_seconds: float = math.nan
    lightgbm_nll: float = math.nan

    @property
    def ratio(self) -> float:
        return self.seconds / self.peer_seconds


def make_split(X: Any, y: Any, seed: int, train_rows: int | None = None) -> Split:
    order = np.random.default_rng(seed).permutation(len(y))
    cut = train_rows or round(0.8 * len(y))
    train, test = order[:cut], order[cut:]
    test = test[np.isin(y[test], y[train])]
    center, spread = X[train].mean(0), X[train].std(0)
    X = (X - center) / np.where(spread > 0, spread, 1.0)
    return Split(X[train], y[train], X[test], y[test])


def make_many_classes(
    n_classes: int = MANY, rows: int = 3000, test_rows: int = 3000, features: int = 4, spread: float = 3.0
) -> Split:
    """Noisy points around random centres."""
    rng = np.random.default_rng(FIRST_SEED)
    centers = spread * rng.standard_normal((n_classes, features))
    y = np.arange(rows + test_rows) % n_classes
    X = centers[y] + 0.5 * rng.standard_normal((rows + test_rows, features))
    return Split(X[:rows], y[:rows], X[rows:], y[rows:])


def time_fit(model: Any, data: Split) -> tuple[float, float]:
    """Return seconds of the fit and test NLL."""
    begin = time.perf_counter()
    model.fit(data.X, data.y)
    seconds = time.perf_counter() - begin
    return seconds, find_nll(model, model.predict_proba(data.X_test), data)


def find_nll(model: Any, P: Any, data: Split) -> float:
    """Return the mean negative log-probability of the test labels."""
    return nll(P, np.searchsorted(model.classes_, data.y_test))


def compare(what: str, splits: list[Split]) -> Row:
    """Fit both libraries in turn on every split."""
    found = []
    for seed, data in enumerate(splits):
        ours = time_fit(GPClassifier(effort=EFFORT, random_state=seed, device="cpu"), data)
        peer = time_fit(HistGradientBoostingClassifier(random_state=seed), data)
        found.append((*ours, *peer, *time_lightgbm(seed, data)))
    return Row(what, len(splits[0].y), *np.mean(found, 0).tolist())


def time_crowded(seconds: float) -> Row:
    """Fit 1,000 classes x 100,000 rows within `seconds`, save, load, and predict 1,000 rows, without a peer."""
    data = make_many_classes(CROWDED, 100 * CROWDED, CROWDED, features=10, spread=1.5)
    begin = time.perf_counter()
    model = GPClassifier(
        effort=EFFORT, random_state=0, device="cpu", training=Training(max_seconds=seconds)
    ).fit(data.X, data.y)
    times = [time.perf_counter() - begin]
    with tempfile.TemporaryDirectory() as folder:
        for step in (lambda path: model.save(path), lambda path: cavity.load(path, device="cpu")):
            begin = time.perf_counter()
            loaded = step(f"{folder}/model.cavity")
            times.append(time.perf_counter() - begin)
    begin = time.perf_counter()
    P = loaded.predict_proba(data.X_test)
    times.append(time.perf_counter() - begin)
    wrong = (P.argmax(1) != data.y_test).mean()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print("fit {:.0f} s, save {:.1f} s, load {:.2f} s, predict {:.1f} s".format(*times), end="; ")
    print(f"error {wrong:.3f}, temperature by {model.calibration_}, peak {peak:.0f} MB", flush=True)
    return Row("1,000 classes", len(data.y), times[0], find_nll(model, P, data), math.nan, math.nan)


def time_lightgbm(seed: int, data: Split) -> tuple[float, float]:
    """Return seconds and test NLL of LightGBM, NaN if it is not installed."""
    try:
        from lightgbm import LGBMClassifier
    except ImportError:
        return math.nan, math.nan
    return time_fit(LGBMClassifier(random_state=seed, n_jobs=torch.get_num_threads(), verbose=-1), data)


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep `count` other processes busy within the block."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def time_loaded() -> Row:
    """Time a fit of 700 rows and 7 features with other work; the peer is the same fit without it."""
    rng = np.random.default_rng(FIRST_SEED)
    X = rng.standard_normal((1400, 7))
    y = (X @ rng.standard_normal((7, 3)) + rng.standard_normal((1400, 3))).argmax(1)
    data = Split(X[:700], y[:700], X[700:], y[700:])
    quiet = time_fit(GPClassifier(effort=EFFORT, random_state=0, device="cpu"), data)
    with busy(LOAD):
        loaded = time_fit(GPClassifier(effort=EFFORT, random_state=0, device="cpu"), data)
    return Row(f"load {LOAD} / quiet", 700, *loaded, *quiet)


def measure(args: argparse.Namespace) -> Iterator[Row]:
    if set(args.sets) - set(CLASSES):
        compare("warm up", [make_split(*load("wine", args.data), FIRST_SEED)])
    for name in args.sets:
        if name in CLASSES:
            yield compare(name, [make_many_classes()]) if name == CLASSES[0] else time_crowded(args.seconds)
            continue
        X, y = load(name, args.data)
        seeds = range(FIRST_SEED, FIRST_SEED + args.splits)
        yield compare(name, [make_split(X, y, seed, TRAIN_ROWS.get(name)) for seed in seeds])
    if not args.only_sets and not set(args.sets) & set(CLASSES):
        yield compare(CLASSES[0], [make_many_classes()])
        yield time_loaded()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="folder of the tables; $CAVITY_DATA without it")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument(
        "--only-sets", action="store_true", help="without many classes and the loaded machine"
    )
    parser.add_argument("--seconds", type=float, default=300.0, help="max_seconds of 1,000 classes")
    parser.add_argument("--csv", default=str(RESULTS))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(args.threads)
    print(f"torch {torch.__version__}, {args.threads} threads, means over {args.splits} splits")
    print(f"{'':16s} {'rows':>5} {'seconds':>8} {'NLL':>7} {'HGB s':>7} {'HGB NLL':>8} {'ratio':>6}")
    with open(args.csv, "w", newline="") as file, threadpool_limits(args.threads):
        writer = csv.writer(file)
        writer.writerow([*Row._fields, "ratio"])
        for row in measure(args):
            print(
                f"{row.what:16s} {row.rows:5d} {row.seconds:8.2f} {row.nll:7.4f} {row.peer_seconds:7.2f} {row.peer_nll:8.4f} "
                f"{row.ratio:6.1f}",
                flush=True,
            )
            writer.writerow([*row, row.ratio])
            file.flush()


if __name__ == "__main__":
    sys.exit(main())
