"""Rows per second and test NLL of two ranks, against how often they share what they found, and over which link.

Two nodes are network namespaces with a link of a given delay (each way) and rate between them; see network.py. Generated rows
with 16 features and 5 classes, SEP, M = 100, mini-batches of 10,000. Every process has one thread and a core of its own; each run
of two ranks is compared with a run of one process just before it, and medians over rounds are written.

`ratio` is the rate of two ranks by that of one process, by the clock. On a machine that others use it also counts the waiting for
each other's turn. `quiet` does not: it is computed from the CPU seconds of a step and the shortest of the communications that
were timed. Both are 2 if two ranks are perfect. The NLL depends on the number of steps between exchanges and not on the link:
--quality measures it, with mini-batches of 1,000.

    python benchmarks/exchange.py [--rounds 3] [--links 1:1000 10:100] [--every exact 4 16 auto] [--csv FILE]
    python benchmarks/exchange.py --quality [--every exact 2 4 8 16 32]

Needs root. Rows go to benchmarks/results/exchange.csv and exchange_nll.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

COLUMNS, CLASSES, INDUCING, TEST = 16, 5, 100, 10_000
RATE = {
    "rows": 80_000,
    "batch": 10_000,
    "epochs": 1,
}  # large batches: the work on M × M matrices does not shrink with ranks
QUALITY = {"rows": 20_000, "batch": 1000, "epochs": 10}  # small ones, of which ranks have few rows
PORT = 29_500
RESULTS = Path(__file__).parent / "results"
FIELDS = (
    "delay_ms mbit every alone ratio quiet rows_per_s one_rows_per_s one_cpu_ms step_cpu_ms sum_ms exchange_ms rounds load "
    "link"
).split()
NLL_FIELDS = "method every nll error log_evidence seed".split()


def make_rows(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of five smooth functions with noise."""
    rng, shape = np.random.default_rng(seed), np.random.default_rng(0)
    slopes, bends = (shape.standard_normal((COLUMNS, CLASSES)) for _ in range(2))
    X = rng.standard_normal((rows, COLUMNS))
    f = X @ slopes / 2 + 2 * np.sin(X @ bends / 2) + 0.5 * rng.gumbel(size=(rows, CLASSES))
    return X, f.argmax(1)


def work(job: dict[str, Any]) -> None:
    """Fit in this process, one of two ranks or alone; rank 0 prints what it found."""
    import torch

    from cavity import GPClassifier, distributed
    from cavity.callbacks import Callback
    from cavity.common.scoring import score_log_proba
    from cavity.options import nest
    from cavity.training.exchange import measure_costs

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    group = distributed.join("gloo")
    stamps: list[tuple[float, float]] = []
    found: dict[str, Any] = {}

    class Clock(Callback):
        """Time the epochs after the first; then time the communication, and leave out the final sweeps."""

        def epoch(self, run: Any, row: dict[str, Any]) -> bool:
            stamps.append((time.perf_counter(), time.process_time()))
            if len(stamps) <= job["epochs"]:
                return False
            found["alone"] = run.alone or 1
            costs = measure_costs(run.state, run.reduce, [0.0])
            found.update(sum_ms=1e3 * costs.exact, exchange_ms=1e3 * costs.exchange)
            run.plan = replace(run.plan, max_seconds=1e-9)
            return True

    rows, epochs = job["rows"], job["epochs"]
    options = {"n_inducing": INDUCING, "batch_size": job["batch"], "device": "cpu", "exchange": job["every"]}
    model = GPClassifier(job["method"], **nest(random_state=job["seed"], tol=0.0, **options))
    X, y = make_rows(rows, 1 + job["seed"])
    if job["quality"]:
        model.set_params(max_epochs=epochs).fit(X, y)
        Xt, yt = make_rows(TEST, 1000)
        scores = score_log_proba(model.predict_log_proba(Xt), yt)
        found = {k: scores[k] for k in ("nll", "error")} | {"log_evidence": model.log_marginal_likelihood_}
    else:
        model.set_params(max_epochs=epochs + 2, callbacks=[Clock()]).fit(X, y)
        steps = epochs * -(-rows // job["batch"])
        found["rows_per_s"] = rows * epochs / (stamps[-1][0] - stamps[0][0])
        cpu = group.gather((stamps[-1][1] - stamps[0][1]) / steps)
        found["step_cpu_ms"] = 1e3 * max(cpu)
    if group.rank == 0:
        Path(job["out"]).write_text(json.dumps(found | {"load": os.getloadavg()[0]}))
    distributed.leave()


def run_one(job: dict[str, Any]) -> dict[str, Any]:
    """Run one process on the first core."""
    command = ["taskset", "-c", "0", sys.executable, __file__, "--job", json.dumps(job | {"every": "exact"})]
    subprocess.run(command, check=True)
    found: dict[str, Any] = json.loads(Path(job["out"]).read_text())
    return found


def run_two(nodes: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Run one rank on each node, each on a core of its own."""
    processes = []
    for i in (0, 1):
        torchrun = ["-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", f"--node-rank={i}"]
        where = ["--master-addr=node0", f"--master-port={PORT}"]
        command = [sys.executable, *torchrun, *where, __file__, "--job", json.dumps(job)]
        processes.append(nodes.start(i, command, core=i, stderr=subprocess.DEVNULL))
    codes = [process.wait(900) for process in processes]
    if any(codes):
        raise SystemExit(f"the ranks ended with {codes}")
    found: dict[str, Any] = json.loads(Path(job["out"]).read_text())
    return found


def compare(delay: float, mbit: float, choices: list[Any], rounds: int, out: str) -> list[dict[str, Any]]:
    """Return the medians of some rounds over one link, for each way to exchange."""
    from network import Nodes

    job = RATE | {"method": "sep", "seed": 0, "quality": False, "out": out}
    table: dict[Any, list[dict[str, Any]]] = {every: [] for every in choices}
    for _ in range(rounds):
        one = run_one(job)
        for every in choices:
            with Nodes(delay, mbit) as nodes:
                two, kind = run_two(nodes, job | {"every": every}), nodes.kind
            shared = two["sum_ms"] if two["alone"] == 1 else two["exchange_ms"] / two["alone"]
            two |= {"one_rows_per_s": one["rows_per_s"], "ratio": two["rows_per_s"] / one["rows_per_s"]}
            two |= {
                "one_cpu_ms": one["step_cpu_ms"],
                "quiet": one["step_cpu_ms"] / (two["step_cpu_ms"] + shared),
            }
            table[every].append(two)
    link = {"delay_ms": delay, "mbit": mbit, "rounds": rounds, "link": kind}
    return [
        {n: statistics.median(r[n] for r in found) for n in FIELDS if n in found[0]} | link | {"every": every}
        for every, found in table.items()
    ]


def judge(method: str, every: Any, seed: int, out: str) -> dict[str, Any]:
    """Return the scores of a whole fit by two ranks on this machine."""
    job = QUALITY | {"method": method, "every": every, "seed": seed, "quality": True, "out": out}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", __file__]
    subprocess.run([*command, "--job", json.dumps(job)], check=True, stderr=subprocess.DEVNULL)
    found: dict[str, Any] = json.loads(Path(out).read_text())
    return {"method": method, "every": every, "seed": seed, **found}


def append(path: Path, fields: list[str], row: dict[str, Any]) -> None:
    """Append a row to the CSV file."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, fields, extrasaction="ignore")
        if new:
            writer.writeheader()
        writer.writerow({k: round(v, 5) if isinstance(v, float) else v for k, v in row.items()})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--links", nargs="+", default=["1:1000", "1:100", "10:1000", "10:100"])
    parser.add_argument("--every", nargs="+", default=["exact", "4", "auto"])
    parser.add_argument("--quality", action="store_true")
    parser.add_argument("--methods", nargs="+", default=["ep", "sep"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        return work(json.loads(args.job))
    out = f"/tmp/cavity-exchange-{os.getpid()}.json"
    choices = [int(every) if every.isdigit() else every for every in args.every]
    if args.quality:
        for seed in args.seeds:
            for method in args.methods:
                for every in choices:
                    row = judge(method, every, seed, out)
                    append(args.csv or RESULTS / "exchange_nll.csv", NLL_FIELDS, row)
                    print(row, flush=True)
        return None
    for link in args.links:
        delay, mbit = map(float, link.split(":"))
        for row in compare(delay, mbit, choices, args.rounds, out):
            append(args.csv or RESULTS / "exchange.csv", FIELDS, row)
            print(row, flush=True)
    return None


if __name__ == "__main__":
    main()
