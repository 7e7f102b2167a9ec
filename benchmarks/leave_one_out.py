"""Leave-one-out from the sites against refits without the row: |Δ log p| of the label, hyper-parameters fixed.

Four tables of scikit-learn, standardized, at most 150 rows, 20 inducing points at rows of the table, an RBF kernel with lengthscale
√D. Three tables of 40 rows are drawn from a Gaussian process of variance 10 and have all rows as inducing points: there a row
counts for much. Nothing is learnt, so a refit differs only by the row that it lacks.

    python benchmarks/leave_one_out.py [--rows 12] [--csv FILE]        # about ten minutes of CPU, most of them VI
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import csv
import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `experiments`

import numpy as np
from sklearn import datasets

from cavity import GPClassifier, Training
from cavity.kernels import RBF
from cavity.methods import REP
from experiments.leave_one_out import FIELDS

RESULTS = Path(__file__).parent / "results" / "leave_one_out.csv"
METHODS = {"ep": "ep", "rep": "rep", "exact": REP(epsilon=1e-9), "sep": "sep", "vi": "vi"}
TABLE_METHODS, DRAWN_METHODS = ("ep", "rep", "sep", "vi"), ("ep", "rep", "exact", "sep")
DRAWN = {f"drawn, {C} classes": C for C in (2, 3, 6)}
TABLES = {
    "breast cancer": datasets.load_breast_cancer,
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "digits 0 to 5": lambda: datasets.load_digits(n_class=6),
}
MOST_ROWS, POINTS, DRAWN_ROWS = 150, 20, 40
VARIANCE, NOISE = 10.0, 0.1  # of the latent functions of drawn tables


def read_table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return at most 150 random rows with standardized columns; constant columns are dropped."""
    if name in DRAWN:
        return draw_table(DRAWN[name])
    data = TABLES[name]()
    some = np.random.default_rng(0).permutation(len(data.target))[:MOST_ROWS]
    X, y = data.data[some], data.target[some]
    X = X[:, X.std(0) > 0]
    return (X - X.mean(0)) / X.std(0), y


def draw_table(C: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw latent functions at random rows, the largest is the label; again if a class has fewer than two rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (DRAWN_ROWS, 2))
    K = VARIANCE * np.exp(-0.5 * np.square(X[:, None] - X).sum(2)) + NOISE * np.eye(DRAWN_ROWS)
    y = np.zeros(DRAWN_ROWS, dtype=int)
    while np.bincount(y, minlength=C).min() < 2:
        y = (np.linalg.cholesky(K) @ rng.normal(size=(DRAWN_ROWS, C))).argmax(1)
    return X, y


def fit(method: str, X: np.ndarray, y: np.ndarray, points: np.ndarray) -> GPClassifier:
    given: dict[str, Any] = {"inducing": points, "device": "cpu"}
    if len(points) == DRAWN_ROWS:
        kernel, training = RBF(lengthscale=1.0, variance=VARIANCE), Training(learn=(), noise=NOISE)
        given |= {"calibration": None, "effort": "fast"}
    else:
        kernel, training = RBF(lengthscale=float(np.sqrt(X.shape[1]))), Training(learn=())
    return GPClassifier(METHODS[method], kernel=kernel, training=training, **given).fit(X, y)


def compare(table: str, method: str, n_rows: int) -> dict[str, Any]:
    """Return the differences in log p of the label over some rows."""
    X, y = read_table(table)
    points = X if table in DRAWN else X[:POINTS]
    rows = np.linspace(0, len(y) - 1, n_rows).astype(int)
    whole = fit(method, X, y, points)
    own = rows, y[rows]
    near, seen = whole.loo_log_proba_[own], whole.predict_log_proba(X)[own]
    exact = np.array([log_p_without(method, X, y, points, i) for i in rows])
    gap = np.abs(near - exact)
    values = (
        len(np.unique(y)),
        n_rows,
        gap.mean(),
        gap.max(),
        np.abs(seen - exact).mean(),
        -near.mean(),
        -exact.mean(),
        -seen.mean(),
    )
    shown = [f"{v:.5f}" if isinstance(v, float) else v for v in values]
    return dict(zip(FIELDS, (table, method, *shown), strict=True))


def log_p_without(method: str, X: np.ndarray, y: np.ndarray, points: np.ndarray, i: int) -> float:
    """Return log p of the label of row i by a model that was fitted to the other rows."""
    model = fit(method, np.delete(X, i, 0), np.delete(y, i), points)
    return float(model.predict_log_proba(X[i : i + 1])[0, y[i]])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=12, help="rows that are left out, one at a time")
    parser.add_argument("--tables", nargs="+", default=[*TABLES, *DRAWN], help="names of tables")
    parser.add_argument("--csv", type=Path, default=RESULTS)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    with args.csv.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        for table in args.tables:
            for method in DRAWN_METHODS if table in DRAWN else TABLE_METHODS:
                row = compare(table, method, args.rows)
                writer.writerow(row)
                file.flush()
                print(*row.values(), flush=True)


if __name__ == "__main__":
    main()
