"""Whether `suspect_labels` finds planted wrong labels: raw tables of CAVITY_DATA/raw.

Twice 5 % of the labels are wrong: `random` ones become another class, `neighbour` ones
the next class in sorted order. Precision is the share of wrong labels among as many
rows as there are wrong labels, by `suspect_labels` and by five folds of scikit-learn's
boosting. `low` counts rows with a score below .05, and `right` is the share of wrong
labels among them. Goal: a precision at least as high as that of boosting.

    python benchmarks/wrong_labels.py [--jobs 16] [--rows 5000] [--seeds 0 3] [--only
    storms credit_data] [--effort balanced] [--out rows.jsonl]
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.preprocessing import OrdinalEncoder

from cavity import GPClassifier

TABLES = (
    "attrition",
    "biopsy",
    "cells",
    "credit_data",
    "doctorvisits",
    "hotel_rates",
    "leaf_id_flavia",
    "olive",
    "storms",
    "wa_churn",
)
KINDS = ("random", "neighbour")
SHARE = 0.05
LOW = 0.05


def read(name: str, most: int, seed: int) -> tuple[pd.DataFrame, Any]:
    """Read at most so many rows of a table, and their labels as numbers."""
    path = Path(os.environ["CAVITY_DATA"]) / "raw" / f"{name}.csv.gz"
    table = pd.read_csv(path, low_memory=False).dropna(subset=["target"])
    table = table.sample(min(most, len(table)), random_state=seed)
    target = table.pop("target").astype(str)
    return table.reset_index(drop=True), np.unique(target, return_inverse=True)[1]


def flip(y: Any, kind: str, rng: np.random.Generator) -> tuple[Any, Any]:
    """Return labels with some wrong ones, and the rows that have them."""
    n_classes = y.max() + 1
    wrong = rng.choice(len(y), round(SHARE * len(y)), replace=False)
    step = 1
    if kind == "random":
        step = rng.integers(1, n_classes, len(wrong))
    given = y.copy()
    given[wrong] = (y[wrong] + step) % n_classes
    return given, wrong


def rank_by_boosting(X: pd.DataFrame, y: Any) -> Any:
    """Return rows by the probability of their label in five folds of boosting."""
    texts = X.select_dtypes(exclude="number").columns
    coded = X.copy()
    encoder = OrdinalEncoder(encoded_missing_value=-1)
    coded[texts] = encoder.fit_transform(X[texts].astype(str))
    model = HistGradientBoostingClassifier(random_state=0)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    p = cross_val_predict(model, coded, y, cv=folds, method="predict_proba")
    return p[np.arange(len(y)), y].argsort()


def measure(job: tuple[str, str, int], most: int, effort: str) -> dict[str, Any]:
    """Plant wrong labels in a table, and look for them."""
    name, kind, seed = job
    X, y = read(name, most, seed)
    given, wrong = flip(y, kind, np.random.default_rng(seed))
    n = len(wrong)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.perf_counter()
        clf = GPClassifier(effort=effort, random_state=seed).fit(X, given)
        fitted = time.perf_counter()
        found = clf.suspect_labels()
        ended = time.perf_counter()
        theirs = rank_by_boosting(X, given)
    low = found.rows[found.scores < LOW]
    return {
        "table": name,
        "kind": kind,
        "seed": seed,
        "rows": len(y),
        "wrong": n,
        "precision": float(np.isin(found.rows[:n], wrong).mean()),
        "boosting": float(np.isin(theirs[:n], wrong).mean()),
        "low": len(low),
        "right": float(np.isin(low, wrong).mean()) if len(low) else None,
        "mean_loss": float(-np.log(found.scores).mean()),
        "estimate": clf.estimate_.log_loss,
        "fit_seconds": round(fitted - began, 1),
        "suspect_seconds": round(ended - fitted, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 1))
    parser.add_argument("--only", nargs="*", default=TABLES)
    parser.add_argument("--effort", default="balanced")
    parser.add_argument("--out")
    asked = parser.parse_args()
    jobs = list(product(asked.only, KINDS, range(*asked.seeds)))
    work = partial(measure, most=asked.rows, effort=asked.effort)
    rows = []
    with get_context("spawn").Pool(asked.jobs) as pool:
        for row in pool.imap_unordered(work, jobs):
            rows.append(row)
            print(json.dumps(row), flush=True)
    ours = np.array([row["precision"] for row in rows])
    theirs = np.array([row["boosting"] for row in rows])
    print(f"precision {ours.mean():.3f}, boosting {theirs.mean():.3f}")
    print(f"at least boosting's in {(ours >= theirs).sum()} of {len(rows)}")
    if asked.out:
        Path(asked.out).write_text("\n".join(map(json.dumps, rows)) + "\n")


if __name__ == "__main__":
    main()
