"""Rows per second of one process and of several, one thread each, on the same global batches.

Every rank takes a part of each batch, and one all-reduce per step adds the parts. The work on M x M matrices does not shrink
with the number of ranks. The runs alternate, so that a noisy machine disturbs both equally.

    python benchmarks/processes.py [--ranks 2] [--rows 40000] [--batch 2000] [--inducing 100] [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
import warnings

import numpy as np


def measure_rate(args: argparse.Namespace, method: str) -> float:
    """Rows per second over the epochs after the first."""
    import torch

    from cavity import GPClassifier
    from cavity.options import nest

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((args.rows, 16))
    y = (X[:, :5] + 0.3 * rng.standard_normal((args.rows, 5))).argmax(1)
    stamps: list[float] = []
    from cavity.callbacks import Callback

    class Clock(Callback):
        def epoch(self, run: object, row: dict[str, object]) -> bool:
            stamps.append(time.perf_counter())
            return len(stamps) > args.epochs

    options = dict(n_inducing=args.inducing, batch_size=args.batch, max_epochs=args.epochs + 2, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        GPClassifier(method, **nest(random_state=0, tol=0.0, callbacks=[Clock()], **options)).fit(X, y)
    return args.rows * (len(stamps) - 1) / (stamps[-1] - stamps[0])


def run_worker(args: argparse.Namespace) -> None:
    """Measure both methods in this process; rank 0 prints the rates."""
    from cavity import distributed

    distributed.join("gloo")
    for method in ("ep", "sep"):
        value = measure_rate(args, method)
        if os.environ.get("RANK", "0") == "0":
            print(f"RATE {method} {value}", flush=True)
    distributed.leave()


def measure(ranks: int, args: argparse.Namespace) -> dict[str, float]:
    """Start the ranks and return the rate of each method."""
    command = [sys.executable]
    if ranks > 1:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    passed = [
        x for name in ("rows", "batch", "inducing", "epochs") for x in (f"--{name}", str(getattr(args, name)))
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, __file__, "--worker", *passed], capture_output=True, text=True, check=True, env=environment
    )
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("RATE")]
    return {method: float(value) for _, method, value in lines}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--batch", type=int, default=2000)
    parser.add_argument("--inducing", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return run_worker(args)
    rounds = [(measure(1, args), measure(args.ranks, args)) for _ in range(args.rounds)]
    print(
        f"{args.rows} rows, 16 features, 5 classes, M = {args.inducing}, batches of {args.batch}, one thread per process"
    )
    print(
        f"{'method':7} {'1 process':>12} {f'{args.ranks} processes':>12} {'ratio':>6}   rows per second, medians"
    )
    for method in ("ep", "sep"):
        one, many = (statistics.median(r[i][method] for r in rounds) for i in (0, 1))
        ratio = statistics.median(r[1][method] / r[0][method] for r in rounds)
        print(f"{method:7} {one:12.0f} {many:12.0f} {ratio:6.2f}")


if __name__ == "__main__":
    main()
