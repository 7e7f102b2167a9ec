"""The papers' Figure 1: log Z_q against seconds on vehicle for three ways of alternating sites and hyper-parameters.

M is a fifth of the training rows; 250 updates of the hyper-parameters on full batches, the papers' sign rule, one split in three
(90 % of the rows). "inner-approx" sweeps the sites once and takes a step whose gradient holds the cavities fixed; "inner-exact"
differentiates through q at fixed (τ, ν); "outer" sweeps to convergence before every step.

    python benchmarks/schedules.py [--data FOLDER] [--updates 250] [--splits 3] [--csv FILE] [--png FILE]
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from typing import Any

import numpy as np
from quality import split  # the papers' splits

SCHEDULES = {"inner-approx": "C0", "inner-exact": "C1", "outer": "C2"}


def curve(schedule: str, seed: int, updates: int, data_home: str | None) -> list[dict[str, Any]]:
    """log Z_q after every update, and the test NLL at the end."""
    from cavity import GPClassifier

    data = split("vehicle", seed, data_home)
    clf = GPClassifier(
        "ep",
        schedule=schedule,
        n_inducing=0.2,
        batch_size=None,
        max_epochs=updates,
        tol=0.0,
        random_state=seed,
    )
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf.fit(data.X, data.y)
    print(f"{schedule:13} split {seed}: {time.perf_counter() - begin:7.1f} s, ", end="")
    place = np.searchsorted(clf.classes_, data.y_test)
    nll = -clf.predict_log_proba(data.X_test)[np.arange(len(place)), place].mean()
    print(f"log Z_q {clf.log_marginal_likelihood_:9.2f}, test NLL {nll:.4f}", flush=True)
    keys = ("epoch", "seconds", "log_evidence", "repairs")
    return [{"schedule": schedule, "split": seed} | {k: row[k] for k in keys} for row in clf.history_]


def draw(rows: list[dict[str, Any]], path: str) -> None:
    """One line a run, one colour a schedule."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axis = figure.subplots()
    for schedule, colour in SCHEDULES.items():
        for seed in sorted({row["split"] for row in rows}):
            line = [row for row in rows if row["schedule"] == schedule and row["split"] == seed]
            label = schedule if seed == 0 else None
            axis.plot([r["seconds"] for r in line], [r["log_evidence"] for r in line], colour, label=label)
    axis.set(xscale="log", xlabel="seconds", ylabel="log Z_q", title="vehicle, M = N/5, 250 updates")
    best = max(row["log_evidence"] for row in rows)
    axis.set_ylim(best - 0.6 * abs(best), best + 0.02 * abs(best))
    axis.legend(title="schedule")
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="folder with vehicle.csv (default: $CAVITY_DATA)")
    parser.add_argument("--updates", type=int, default=250)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--csv", default="schedules.csv")
    parser.add_argument("--png", default="schedules.png")
    args = parser.parse_args()
    rows = [
        row
        for schedule in SCHEDULES
        for seed in range(args.splits)
        for row in curve(schedule, seed, args.updates, args.data)
    ]
    with open(args.csv, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    draw(rows, args.png)
    print(f"{args.csv} and {args.png} written")


if __name__ == "__main__":
    main()
