"""Whether `estimate_` covers new rows, and test NLL, seconds and confidence far away, relative to `effort="fast"`.

Generated tables of seven families (20 to 3,000 rows, 2 to 64 columns, 2 to 15 classes, half of them with weights, some with
copies of every row), and splits of data sets. An estimate covers if the log loss of new rows is within two standard errors; z is
its distance in these, and bias that of the accuracy. docs/decisions/0048 has the figures.

    python benchmarks/estimates.py [--tables 400 520] [--sets wine glass --seeds 4000] [--jobs 2] [--data FOLDER]
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `experiments`

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from cavity import GPClassifier
from experiments.sets import split

NEW_ROWS, MOST_ROWS, FAR_ROWS = 4000, 2000, 200
MODELS = ("fast", "balanced", "boosting")


class Drawn(NamedTuple):
    """Training rows with weights, and new rows of the same law."""

    X: np.ndarray
    y: np.ndarray
    new: np.ndarray
    labels: np.ndarray
    weights: str = "none"


def draw_table(seed: int) -> Drawn:
    """Draw a table; the seed decides its size, family and weights."""
    rng, family = np.random.default_rng(770_000 + seed), seed % 7
    N, C, D = (
        int(rng.choice(x))
        for x in ([20, 40, 80, 150, 300, 600, 1200, 3000], [2, 2, 3, 3, 5, 8, 15], [2, 4, 8, 16, 32, 64])
    )
    C, copies = min(C, N // 8), int(rng.choice([1, 1, 1, 5, 20, 40])) if N <= 150 else 1
    n, scale = N + NEW_ROWS, 1.5 / np.sqrt(D)
    X = rng.normal(size=(n, D))
    if family == 0:  # Gaussian classes
        centres = rng.normal(size=(C, D)) * rng.uniform(0.5, 1.6) * scale
        y = rng.integers(C, size=n)
        X = X + centres[y]
    elif family == 1:  # smooth functions
        w, b = rng.normal(size=(D, 64)) / rng.uniform(1, 3) * scale, rng.uniform(0, 6.3, 64)
        f = np.cos(X @ w + b) @ rng.normal(size=(64, C)) / 8 * rng.uniform(1, 4)
        y = (f + rng.gumbel(size=f.shape) * rng.choice([0.2, 0.5, 1.0])).argmax(1)
    elif family == 2:  # linear functions
        f = X @ rng.normal(size=(D, C)) * rng.uniform(0.2, 1.5) * scale
        y = (f + rng.gumbel(size=f.shape)).argmax(1)
    elif family == 3:  # a tree of four cuts, some labels at random
        cell = np.zeros(n, int)
        for _ in range(4):
            cell = 2 * cell + (X[:, rng.integers(D)] > rng.normal() * 0.6)
        y = rng.integers(C, size=16)[cell]
        y = np.where(rng.random(n) < rng.choice([0.0, 0.1, 0.3]), rng.integers(C, size=n), y)
    elif family == 4:  # waves of two columns
        f = np.stack([np.sin(X[:, :2] @ rng.normal(size=2) * 1.5 + i) for i in range(C)], 1) * rng.uniform(
            1, 3
        )
        y = (f + rng.gumbel(size=f.shape)).argmax(1)
    elif family == 5:  # labels at random
        y = rng.integers(C, size=n)
    else:  # whole numbers that say little
        X = np.round(X * 1.5) + 0.0
        f = np.log(rng.dirichlet(np.ones(C) * 2)) + X @ rng.normal(size=(D, C)) * 0.2 * scale
        y = (f + rng.gumbel(size=f.shape)).argmax(1)
    known = np.unique(y[:N])
    if len(known) == 1:
        return draw_table(seed + 24_000)  # a table of one class: another of the same family and weights
    kept = np.isin(y, known)
    X, y = X[kept], np.searchsorted(known, y[kept])
    kind = "copies" if copies > 1 else ("none", "none", "balanced", "log-normal")[seed // 7 % 4]
    return Drawn(X[:N].repeat(copies, 0), y[:N].repeat(copies), X[N:], y[N:], kind)


def draw_split(name: str, seed: int, data_home: str | None) -> Drawn:
    """Return a split of a data set, without new rows of classes that training rows lack."""
    data = split(name, seed, data_home)
    classes, y = np.unique(data.y[:MOST_ROWS], return_inverse=True)
    new, labels = data.X_test[:MOST_ROWS], data.y_test[:MOST_ROWS]
    known = np.isin(labels, classes)
    return Drawn(data.X[:MOST_ROWS], y, new[known], np.searchsorted(classes, labels[known]), "shared table")


def measure(task: int | tuple[str, int], data_home: str | None) -> tuple[str, dict[str, dict[str, float]]]:
    """Fit every model to one table."""
    warnings.simplefilter("ignore")
    table = draw_split(*task, data_home) if isinstance(task, tuple) else draw_table(task)
    rng = np.random.default_rng(0 if isinstance(task, tuple) else task)
    given = rng.lognormal(size=len(table.y)) if table.weights == "log-normal" else None
    given = None if given is None else given / given.mean()
    balanced = table.weights == "balanced"
    of_new = 1 / np.bincount(table.y)[table.labels] if balanced else np.ones(len(table.labels))
    far = table.X.mean(0) + 6 * table.X.std(0) * rng.normal(size=(FAR_ROWS, table.X.shape[1]))
    found = {}
    for name in MODELS:
        model: Any = HistGradientBoostingClassifier(
            early_stopping=len(table.y) > 300 and min(np.bincount(table.y)) > 1, random_state=0
        )
        if name != "boosting":
            model = GPClassifier(effort=name, class_weight="balanced" if balanced else None, random_state=0)
        begun = time.process_time()
        model.fit(table.X, table.y, sample_weight=given)
        seconds = time.process_time() - begun
        P = model.predict_proba(table.new)
        loss = -np.log(np.maximum(P[np.arange(len(P)), table.labels], 1e-15))
        nll, covers, z, bias = float(np.average(loss, weights=of_new)), np.nan, np.nan, np.nan
        if name != "boosting":
            of_mean = np.sqrt((of_new**2 * (loss - nll) ** 2).sum()) / of_new.sum()
            error = np.hypot(model.estimate_.standard_error, of_mean)
            z = (model.estimate_.log_loss - nll) / error
            covers = float(abs(z) < 2)
            bias = model.estimate_.accuracy - float(np.average(P.argmax(1) == table.labels, weights=of_new))
        found[name] = {
            "nll": nll,
            "seconds": seconds,
            "far": float(model.predict_proba(far).max(1).mean()),
            "covers": covers,
            "z": z,
            "bias": bias,
        }
    return table.weights, found


def main() -> None:
    """Fit all tables and print a line per kind of weights and model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--tables",
        type=int,
        nargs=2,
        default=(0, 0),
        help="first seed of generated tables, and one after the last",
    )
    parser.add_argument("--sets", nargs="*", default=[], help="data sets")
    parser.add_argument("--seeds", type=int, nargs="*", default=[4000, 4001], help="splits of the data sets")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--data", default=None, help="folder of the data sets")
    options = parser.parse_args()
    tasks: list[Any] = [(name, seed) for name in options.sets for seed in options.seeds]
    tasks += range(*options.tables)
    with get_context("spawn").Pool(options.jobs) as pool:
        rows = pool.map(partial(measure, data_home=options.data), tasks, chunksize=1)
    heads = ("tables", 6), ("NLL", 7), ("seconds", 8), ("far", 6), ("covers", 7), ("z", 6), ("bias", 6)
    print(
        f"{'weights':14} {'model':10}",
        *(f"{name:>{width}}" for name, width in heads),
        " (NLL, seconds: of fast)",
    )
    for kind in [*sorted({kind for kind, _ in rows}), "all"]:
        chosen = [found for of, found in rows if kind in (of, "all")]
        for name in MODELS:
            nll, seconds = (
                float(np.exp(np.mean([np.log(found[name][key] / found["fast"][key]) for found in chosen])))
                for key in ("nll", "seconds")
            )
            far, covers, z, bias = (
                float(np.mean([found[name][key] for found in chosen]))
                for key in ("far", "covers", "z", "bias")
            )
            print(
                f"{kind:14} {name:10} {len(chosen):6} {nll:7.3f} {seconds:8.2f} {far:6.3f} {covers:7.1%} {z:6.2f} {bias:6.3f}"
            )


if __name__ == "__main__":
    main()
