"""Test NLL on tables as people have them: cavity at every effort, next to LightGBM with its native categories.

Every table is read with pandas, without its column of row numbers, and given to both libraries as it is: categories, dates, ids
and missing cells included. For LightGBM text columns become pandas categories. Both have their default settings. A row of
the CSV is one fit: 80 % of the rows that have a label for training, the rest for the test.

    python benchmarks/tables.py --data FOLDER [--seeds 3] [--sets chile fishing] [--models fast lightgbm] [--csv FILE]
    python benchmarks/tables.py --summary                  # the table of docs/results/comparison.md, from the CSV
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `experiments`

from experiments.text_tables import MODELS, summarize

SETS = {
    "penguins": ("tables/penguins_raw.csv", "Species"),
    "chile": ("tables/chile.csv", "vote"),
    "fishing": ("tables/fishing.csv", "mode"),
    "males": ("tables/males.csv", "occupation"),
    "mushroom": ("mushroom.csv.gz", "class"),
    "tic_tac_toe": ("tic_tac_toe.csv", "class"),
    "chess": ("chess.csv.gz", "class"),
    "housevotes": ("housevotes.csv", "class"),
}
FIRST_SEED = 2000  # defaults were chosen on splits 1000 to 1003 of some of these tables
FIELDS = ("table", "model", "seed", "rows", "classes", "nll", "error", "seconds")
RESULTS = Path(__file__).parent / "results" / "tables.csv"
FLOOR = 1e-15  # smallest probability that counts, as in scikit-learn's log_loss


def read_table(name: str, folder: Path) -> tuple[Any, np.ndarray]:
    """Return the columns of a table without its row numbers, and the labels."""
    import pandas as pd

    file, target = SETS[name]
    frame = pd.read_csv(folder / file)
    frame = frame[frame[target].notna()].reset_index(drop=True)
    frame = frame.drop(columns=[c for c in frame.columns if str(c).startswith("Unnamed:")])
    return frame.drop(columns=target), frame[target].astype(str).to_numpy()


def split(y: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return training and test rows; the classes of the test rows are in the training rows."""
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = np.split(order, [round(0.8 * len(y))])
    return train, test[np.isin(y[test], y[train])]


def with_categories(X: Any) -> Any:
    """Return the frame as LightGBM takes it: text as categories."""
    return X.assign(**{c: X[c].astype("category") for c in X.columns if X[c].dtype.kind not in "biuf"})


def fit_one(
    model: str, X: Any, y: np.ndarray, train: np.ndarray, test: np.ndarray, seed: int
) -> tuple[float, float, float]:
    """Return test NLL, test error and CPU seconds of the fit."""
    if model == "lightgbm":
        from lightgbm import LGBMClassifier

        X, made = with_categories(X), LGBMClassifier(random_state=seed, verbose=-1, n_jobs=1)
    else:
        from cavity import GPClassifier

        made = GPClassifier(effort=model, random_state=seed)
    begun = time.process_time()
    made.fit(X.iloc[train], y[train])
    seconds = time.process_time() - begun
    P = np.asarray(made.predict_proba(X.iloc[test]))
    own = P[np.arange(len(test)), np.searchsorted(made.classes_, y[test])]
    wrong = made.classes_[P.argmax(1)] != y[test]
    return float(-np.log(np.clip(own, FLOOR, 1)).mean()), float(wrong.mean()), seconds


def run(args: argparse.Namespace) -> Iterable[dict[str, Any]]:
    done = set()
    if Path(args.csv).exists():
        with open(args.csv, newline="") as file:
            done = {(r["table"], r["model"], int(r["seed"])) for r in csv.DictReader(file)}
    for seed in range(FIRST_SEED, FIRST_SEED + args.seeds):
        for model in args.models:
            for name in args.sets:
                if (name, model, seed) in done:
                    continue
                X, y = read_table(name, Path(args.data))
                train, test = split(y, seed)
                nll, error, seconds = fit_one(model, X, y, train, test, seed)
                values = (
                    name,
                    model,
                    seed,
                    len(train),
                    len(set(y)),
                    round(nll, 5),
                    round(error, 5),
                    round(seconds, 1),
                )
                yield dict(zip(FIELDS, values, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("CAVITY_DATA", "."), help="folder of the tables")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--models", nargs="*", default=MODELS, choices=MODELS)
    parser.add_argument(
        "--csv", default=str(RESULTS), help="rows are appended; fits that it has are not repeated"
    )
    parser.add_argument("--summary", action="store_true", help="only print the means of the CSV")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if not args.summary:
        new = not Path(args.csv).exists()
        with open(args.csv, "a", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            if new:
                writer.writeheader()
            for row in run(args):
                writer.writerow(row)
                file.flush()
                print(*row.values(), flush=True)
    print(summarize(Path(args.csv)))


if __name__ == "__main__":
    main()
