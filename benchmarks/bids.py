"""Bids of costly members against what their full fits take and bring.

    PYTHONPATH=src:. python benchmarks/bids.py --jobs 16
    PYTHONPATH=src:. python benchmarks/bids.py --only large/storms --rows 8000

Every member bids and every bid is accepted. Each process has one core, and its seconds
are CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import time
import warnings
from types import SimpleNamespace
from typing import Any

TABLES = (
    "large/flights",
    "large/storms",
    "large/hotel_rates",
    "large/nasscds",
    "large/covid_testing",
    "numeric/magic",
    "numeric/pendigits",
    "numeric/satellite",
    "numeric/phoneme",
    "numeric/letter",
)
MOST_ROWS = 24_000


def fit_table(job: tuple[int, str, int]) -> dict[str, Any]:
    """Fit one table, and return its bids."""
    number, name, most = job
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[number % len(cores)]})
    import numpy as np

    from cavity import GPClassifier
    from cavity.fitting.options.policy import bids
    from cavity.pool import members
    from experiments.table_data import read_table, split_table

    vars(bids)["BID_SECONDS"] = 0.0
    vars(bids)["PRICE"] = dict.fromkeys(bids.PRICE, 0.0)
    vars(members)["time"] = SimpleNamespace(perf_counter=time.process_time)
    warnings.simplefilter("ignore")
    data = split_table(*read_table(*name.split("/")), seed=0, train_rows=most)
    model = GPClassifier(random_state=0, device="cpu")
    begun = time.process_time()
    model.fit(data.X.iloc[data.train], data.y[data.train])
    seconds = time.process_time() - begun
    log_p = model.predict_log_proba(data.X.iloc[data.test])
    own = log_p[np.arange(len(data.test)), data.y[data.test]]
    return {
        "table": name,
        "rows": len(data.train),
        "seconds": seconds,
        "nll": float(-own.mean()),
        "bids": [list(bid) for bid in model.plan_.members.bids],
    }


def show(found: dict[str, Any]) -> list[float]:
    """Print the bids of a table, and return how far their seconds erred."""
    head = f"{found['table']} ({found['rows']:,} rows, {found['seconds']:.0f} s"
    print(f"{head}, NLL {found['nll']:.4f})")
    errors = []
    for name, seconds, gain, _, took, brought in found["bids"]:
        line = f"    {name:<16} predicted {seconds:6.2f} s {gain:8.5f}"
        if took is not None:
            error = math.exp(abs(math.log(seconds / took)))
            errors.append(error)
            line += f"   true {took:6.2f} s {brought:8.5f}   seconds off by {error:.2f}"
        print(line, flush=True)
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--rows", type=int, default=MOST_ROWS)
    parser.add_argument("--only", default=",".join(TABLES))
    parser.add_argument("--out", help="file of the records, one JSON per line")
    asked = parser.parse_args()
    jobs = [(i, name, asked.rows) for i, name in enumerate(asked.only.split(","))]
    os.environ["OMP_NUM_THREADS"] = "1"
    errors = []
    context = multiprocessing.get_context("spawn")
    with context.Pool(asked.jobs, maxtasksperchild=1) as pool:
        for found in pool.imap_unordered(fit_table, jobs, chunksize=1):
            errors += show(found)
            if asked.out:
                with open(asked.out, "a", encoding="utf-8") as file:
                    file.write(json.dumps(found) + "\n")

    within = sum(error <= 1.5 for error in errors)
    print(f"seconds within 1.5 times: {within} of {len(errors)}")


if __name__ == "__main__":
    main()
