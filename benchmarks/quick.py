"""Compare default fits with histogram gradient boosting on five small tables, and with
the ratios of the last release: CPU seconds of a fit, and the log loss of new rows.

    python benchmarks/quick.py [--write]

Both models run in turn in the same process, on one core, so the ratios hardly depend on
the machine. Exit code 1 if a ratio is above 1.3 times the one in results/quick.json.
With --write, the file gets the new ratios.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from cavity import GPClassifier

STORED = Path(__file__).parent / "results" / "quick.json"
WORST = 1.3  # times the stored ratio
REPEATS = 3  # fits of each model; the quickest counts

Table = tuple[Any, Any]
Ratios = dict[str, dict[str, float]]


def draw_loans() -> Table:
    """Categories, missing cells, and an interaction."""
    rng = np.random.default_rng(0)
    n = 1500
    debt = rng.beta(2, 4, n)
    delays = rng.poisson(0.5, n)
    purpose = rng.choice(["car", "house", "business"], n)
    risk = -3 + 5 * debt * (1 + delays) + 0.8 * (purpose == "business")
    X = pd.DataFrame(
        {
            "debt": np.where(rng.random(n) < 0.1, np.nan, debt),
            "delays": delays,
            "purpose": pd.Categorical(purpose),
        }
    )
    return X, rng.random(n) < 1 / (1 + np.exp(-risk))


TABLES: dict[str, Callable[[], Table]] = {
    "wine": lambda: datasets.load_wine(return_X_y=True),
    "cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
    "digits": lambda: tuple(
        part[:800] for part in datasets.load_digits(return_X_y=True)
    ),
    "moons": lambda: datasets.make_moons(1500, noise=0.3, random_state=0),
    "loans": draw_loans,
}


def measure(name: str) -> dict[str, float]:
    """Return the ratios of one table: cavity by boosting."""
    X, y = TABLES[name]()
    parts = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)
    cavity = GPClassifier(random_state=0, device="cpu")
    boosting = HistGradientBoostingClassifier(
        categorical_features="from_dtype", random_state=0
    )
    seconds: dict[str, list[float]] = {"cavity": [], "boosting": []}
    loss = {}
    for _ in range(REPEATS):
        for who, model in (("cavity", cavity), ("boosting", boosting)):
            begun = time.process_time()
            model.fit(parts[0], parts[2])
            seconds[who].append(time.process_time() - begun)
            loss[who] = log_loss(parts[3], model.predict_proba(parts[1]))
    ours, theirs = (min(seconds[who]) for who in ("cavity", "boosting"))
    print(
        f"{name:8}{ours:9.2f}{theirs:9.2f}{loss['cavity']:9.4f}{loss['boosting']:9.4f}",
        flush=True,
    )
    return {"seconds": ours / theirs, "nll": loss["cavity"] / loss["boosting"]}


def find_worse(found: Ratios, stored: Ratios) -> list[str]:
    """Return a line for each ratio that has become too large."""
    worse = []
    for name, ratios in found.items():
        for what, ratio in ratios.items():
            known = stored[name][what]
            if ratio > WORST * known:
                worse.append(
                    f"{name}: {what} {ratio:.3f} times boosting's, {known:.3f} stored"
                )

    return worse


def main() -> int:
    warnings.simplefilter("ignore")
    print("table    seconds boosting     loss boosting")
    found = {name: measure(name) for name in TABLES}
    if "--write" in sys.argv[1:]:
        rounded = {
            name: {what: float(f"{ratio:.4g}") for what, ratio in ratios.items()}
            for name, ratios in found.items()
        }
        STORED.write_text(json.dumps(rounded, indent=2) + "\n", encoding="utf-8")
        return 0
    worse = find_worse(found, json.loads(STORED.read_text(encoding="utf-8")))
    print("\n".join(worse) or f"No ratio is above {WORST} times the stored one.")
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
