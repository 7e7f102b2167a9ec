"""Delays of flights: test NLL and error against seconds and passes, beside logistic regression.

The target is early, on time or late. The papers' own file cannot be had; these are other years and airports with the same target:
nyc2013 (273,853 rows, the papers' eight columns) and us2001 (3,000,000 rows, five of the columns and the coordinates of both
airports). Rows are shuffled, 10,000 are held out, and the curves are those of two passes over the rest in mini-batches.

    python benchmarks/flights.py [--data FOLDER] [--set nyc2013] [--methods ep sep vi] [--csv FILE] [--png FILE]
"""

from __future__ import annotations

import argparse
import csv
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

HELD_OUT = 10_000


def load(name: str, folder: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training rows and labels, then held-out ones."""
    with np.load(Path(folder) / f"flights_{name}.npz", allow_pickle=False) as file:
        X, y = file["x"].astype(np.float64), file["y"].astype(np.int64)
        if "origin" in file:
            places = np.stack([file["airport_latitude"], file["airport_longitude"]], 1).astype(np.float64)
            X = np.concatenate([X, places[file["origin"]], places[file["destination"]]], 1)
    order = np.random.default_rng(seed).permutation(len(y))
    test, train = order[:HELD_OUT], order[HELD_OUT:]
    return X[train], y[train], X[test], y[test]


def scores(log_p: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    return float(-log_p[np.arange(len(y)), y].mean()), float((log_p.argmax(1) != y).mean())


def linear(data: tuple[np.ndarray, ...]) -> dict[str, Any]:
    """Logistic regression on standardised columns."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y, X_test, y_test = data
    begin = time.perf_counter()
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(X, y)
    seconds = time.perf_counter() - begin
    nll, error = scores(model.predict_log_proba(X_test), y_test)
    return {"method": "logistic", "passes": 0.0, "seconds": seconds, "nll": nll, "error": error}


def curve(method: str, data: tuple[np.ndarray, ...], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Scores at forty moments of the run, the time of scoring left out."""
    from cavity import GPClassifier
    from cavity.callbacks import Callback
    from cavity.estimators import build, watch

    X, y, X_test, y_test = data
    held = build.Table(X_test, y_test, np.ones(len(y_test)), 3)
    steps = args.passes * -(-len(y) // args.batch)
    moments = set(np.unique(np.geomspace(5, steps, 40).round().astype(int)))
    rows: list[dict[str, Any]] = []

    class Curve(Callback):
        done, paused, begin = 0, 0.0, time.perf_counter()

        def step(self, run: Any) -> None:
            self.done += 1
            if self.done in moments:
                now = time.perf_counter()
                log_p = watch.log_probability(run.engine, run.state, held)
                nll, error = scores(log_p, y_test)
                seconds = now - self.begin - self.paused
                passes = self.done * args.batch / len(y)
                rows.append(
                    {"method": method, "passes": passes, "seconds": seconds, "nll": nll, "error": error}
                )
                print(
                    f"{method:8} {passes:7.3f} passes {seconds:7.1f} s  NLL {nll:.4f}  error {error:.4f}",
                    flush=True,
                )
                self.paused += time.perf_counter() - now

        def epoch(self, run: Any, row: dict[str, Any]) -> bool:
            return self.done >= steps

    options = dict(
        n_inducing=args.inducing, batch_size=args.batch, max_epochs=args.passes, tol=0.0, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf = GPClassifier(method, callbacks=[Curve()], **options).fit(X, y)
    nll, error = scores(clf.predict_log_proba(X_test), y_test)
    print(f"{method:8} at the end, sites settled:  NLL {nll:.4f}  error {error:.4f}", flush=True)
    return rows


def draw(rows: list[dict[str, Any]], name: str, path: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    for axis, score in zip(figure.subplots(1, 2), ("nll", "error"), strict=True):
        for method in dict.fromkeys(row["method"] for row in rows):
            line = [row for row in rows if row["method"] == method]
            if method == "logistic":
                axis.axhline(line[0][score], color="0.5", ls="--", label="logistic regression")
            else:
                axis.plot([r["passes"] for r in line], [r[score] for r in line], label=method)
        axis.set(
            xscale="log", xlabel="passes over the rows", ylabel=f"test {score}", title=f"flights, {name}"
        )
        best = min(row[score] for row in rows)
        axis.set_ylim(
            best - 0.01, max(best + 0.12, max(r[score] for r in rows if r["method"] == "logistic") + 0.02)
        )
        axis.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        default=os.environ.get("CAVITY_DATA"),
        help="folder with the flights (default: $CAVITY_DATA)",
    )
    parser.add_argument("--set", default="nyc2013", choices=["nyc2013", "us2001", "houston2011", "pnw2014"])
    parser.add_argument("--methods", nargs="+", default=["ep", "sep", "vi"])
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--inducing", type=int, default=100)
    parser.add_argument("--csv", default="flights.csv")
    parser.add_argument("--png", default="flights.png")
    args = parser.parse_args()
    if not args.data:
        parser.error("say where the flights are: --data FOLDER, or CAVITY_DATA=FOLDER")
    data = load(args.set, args.data)
    rows = [linear(data)]
    print(
        "logistic regression: {seconds:.1f} s  NLL {nll:.4f}  error {error:.4f}".format(**rows[0]), flush=True
    )
    for method in args.methods:
        rows += curve(method, data, args)
        with open(args.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, ["set", *rows[0]])
            writer.writeheader()
            writer.writerows({"set": args.set} | row for row in rows)
        draw(rows, args.set, args.png)
    for method in args.methods:
        line = [row for row in rows if row["method"] == method]
        first = next(
            (r["passes"] for r in line if r["nll"] < rows[0]["nll"] and r["error"] < rows[0]["error"]), None
        )
        best = min(range(len(line)), key=lambda i: line[i]["nll"])
        rise = max(r["nll"] for r in line[best:]) - line[best]["nll"]
        when = "never" if first is None else f"from {first:.3f} passes on"
        print(f"{method}: beats logistic regression {when}; ", end="")
        print(f"least NLL {line[best]['nll']:.4f}, later at most {rise:.4f} above it")


if __name__ == "__main__":
    main()
