"""MNIST on one GPU: time per step, seconds to levels of test NLL, and the same for
GPyTorch's SVGP.

"devices" times fits of small tables on the CPU and on the GPU, for `device="auto"`.

All 784 features, 60,000 training rows, 10,000 test rows. Seconds include everything in
a fit (starting values, recording of graphs, training), but not the evaluation on test
rows.

    python benchmarks/gpu.py [--data FOLDER] [--parts step train peer devices]
    [--seconds 60] [--csv FILE]
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import torch
from step_time import (
    make_cavity_step,
    make_gpytorch_step,
    make_latent_processes,
    make_start,
    repeat_batches,
    time_steps,
)

from cavity import GPClassifier
from cavity.callbacks import Callback
from cavity.common.ranks import Local
from cavity.common.scoring import score_log_proba
from cavity.engine import runs
from cavity.engine.training.guard import Guard
from cavity.engine.training.optimisers import OPTIMISERS
from cavity.engine.training.replay import LAG, Replay
from cavity.fitting.options import nest
from cavity.prediction.model import snapshot
from cavity.prediction.predict import log_probabilities, predict_latent
from experiments import sets

LEVELS = (0.104, 0.08, 0.0725, 0.069)
RUNS = [  # method, M, batch, passes, precision
    ("ep", 200, 2000, 400, "float64"),
    ("sep", 200, 2000, 400, "float64"),
    ("ep", 700, 2000, 70, "float64"),
    ("sep", 700, 2000, 70, "float64"),
    ("ep", 1000, 3000, 60, "float64"),
]
DEVICE_SIZES = list(
    product(
        ("magic", "waveform", "satellite", "pendigits"), (200, 400, 700, 1000, 1500)
    )
)


class Evaluation(Callback):
    """Test NLL and error after every `every` seconds of training; stops after
    `seconds`. Evaluation time does not count.
    """

    def __init__(
        self, X: np.ndarray, y: np.ndarray, every: float, seconds: float
    ) -> None:
        self.X = X
        self.y = y
        self.every = every
        self.seconds = seconds
        self.rows: list[dict[str, float]] = []
        self.begun = time.perf_counter()
        self.evaluating = 0.0
        self.next = every

    def epoch(self, run: Any, row: dict[str, Any]) -> bool:
        torch.cuda.synchronize()
        now = time.perf_counter() - self.begun - self.evaluating
        if now >= self.next:
            self.next = now + self.every
            self.evaluate(run, now)
        self.evaluating += time.perf_counter() - self.begun - self.evaluating - now
        return now > self.seconds

    def evaluate(self, run: Any, now: float) -> None:
        model = snapshot(run.engine, run.state)
        f = predict_latent(model, torch.tensor(self.X, device=run.state.theta.device))
        found = score_log_proba(log_probabilities(model, f), self.y)
        self.rows.append(
            {
                "seconds": now,
                "epochs": len(run.history),
                "nll": found["nll"],
                "error": found["error"],
            }
        )


def train(
    data: Any,
    method: str,
    M: int,
    batch: int,
    epochs: int,
    dtype: str,
    seconds: float,
    **options: Any,
) -> list[dict[str, Any]]:
    X, y, X_test, y_test = data
    evaluation = Evaluation(X_test, y_test, 0.5, seconds)
    size = {"n_inducing": M, "batch_size": batch, "max_epochs": epochs, "dtype": dtype}
    clf = GPClassifier(
        method,
        **nest(
            device="cuda", random_state=0, callbacks=[evaluation], **size, **options
        ),
    )
    clf.fit(X, y)
    total = time.perf_counter() - evaluation.begun - evaluation.evaluating
    found = score_log_proba(clf.predict_log_proba(X_test), y_test)
    final = {
        "seconds": total,
        "epochs": clf.n_epochs_,
        "nll": found["nll"],
        "error": found["error"],
    }
    rows = [*evaluation.rows, final]
    return [
        {"method": method, "M": M, "batch": batch, "dtype": dtype, **row}
        for row in rows
    ]


def train_gpytorch(
    data: Any, M: int, batch: int, rate: float, seconds: float
) -> list[dict[str, Any]]:
    """GPyTorch's SVGP with a softmax likelihood, as in its documentation."""
    import gpytorch

    X, y, X_test, y_test = (torch.tensor(a, device="cuda") for a in data)
    X = X.float()
    X_test = X_test.float()
    begun = time.perf_counter()
    evaluating = 0.0
    rows = []
    due = 2.0
    Z = X[torch.randperm(len(X), generator=torch.Generator().manual_seed(0))[:M].cuda()]

    model = make_latent_processes(Z.expand(10, M, -1).clone(), 5.0).cuda()
    likelihood = gpytorch.likelihoods.SoftmaxLikelihood(
        num_classes=10, mixing_weights=False
    ).cuda()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(X))
    optimiser = torch.optim.Adam(
        [*model.parameters(), *likelihood.parameters()], lr=rate
    )

    def evaluate(now: float) -> None:
        model.eval()
        with torch.no_grad(), gpytorch.settings.num_likelihood_samples(64):
            p = torch.cat(
                [likelihood(model(part)).probs.mean(0) for part in X_test.split(2000)]
            )
        nll = float(-p[torch.arange(len(y_test)), y_test].log().mean())
        error = float((p.argmax(1) != y_test).double().mean())
        rows.append({"seconds": now, "epochs": passes, "nll": nll, "error": error})
        model.train()

    passes = 0
    while True:
        for index in torch.randperm(len(X), device="cuda").split(batch):
            optimiser.zero_grad()
            (-bound(model(X[index]), y[index])).backward()
            optimiser.step()
        passes += 1
        torch.cuda.synchronize()
        now = time.perf_counter() - begun - evaluating
        if now >= due or now > seconds:
            evaluate(now)
            due = now + 2.0
            evaluating = time.perf_counter() - begun - now
        if now > seconds:
            break
    return [
        {
            "method": f"gpytorch {rate:g}",
            "M": M,
            "batch": batch,
            "dtype": "float32",
            **row,
        }
        for row in rows
    ]


def print_levels(rows: list[dict[str, Any]]) -> None:
    """Print the seconds to each level, and the scores at the end."""
    last = rows[-1]
    reached = [
        next((r["seconds"] for r in rows if r["nll"] <= level), None)
        for level in LEVELS
    ]
    text = "  ".join("    –" if s is None else f"{s:5.1f}" for s in reached)
    best = min(r["nll"] for r in rows)
    print(
        f"{last['method']:14} {last['M']:4} {last['batch']:5} {last['dtype']:>8}  "
        f"{text}   {last['nll']:.4f} (lowest {best:.4f}) "
        f"{100 * last['error']:.2f} %  {last['seconds']:6.1f} s  {last['epochs']} "
        f"passes",
        flush=True,
    )


def make_recorded_step(
    method: str, C: int, M: int, batch: int, D: int, dtype: str, device: str
) -> Callable[[], None]:
    """LAG steps as in a fit: fetch batches, replay the recorded step, then look whether
    one failed.
    """
    engine, rows, state = make_start(method, C, M, batch, D, dtype, device)
    replay = Replay(Guard(engine, Local()), OPTIMISERS["adam"], state)
    replay.load(state)
    steps = ((batch, 0.01) for batch in repeat_batches(rows, batch))

    def step() -> None:
        replay.run(steps)

    return step


def time_all_steps(rounds: int) -> list[dict[str, Any]]:
    records = []
    print(
        f"{'ms per step':24} {'EP':>7} {'SEP':>7} {'EP eager':>9} {'SEP eager':>9} "
        f"{'GPyTorch':>9}"
    )
    for M, batch in ((200, 1000), (500, 2000)):
        for dtype in ("float32", "float64"):
            size = (10, M, batch, 784, dtype, "cuda")
            made: list[Callable[[], None]] = [
                make_recorded_step("ep", *size),
                make_recorded_step("sep", *size),
                make_cavity_step("ep", *size),
                make_cavity_step("sep", *size),
                make_gpytorch_step(*size),
            ]
            for step in made:
                time_steps(step, 5, "cuda")
            taken = (LAG, LAG, 1, 1, 1)  # steps in a call
            ms = [
                np.median(
                    [time_steps(step, -(-20 // n), "cuda") / n for _ in range(rounds)]
                )
                for step, n in zip(made, taken, strict=True)
            ]
            print(
                f"M {M} batch {batch} {dtype:>8}  " + " ".join(f"{t:7.2f}" for t in ms),
                flush=True,
            )
            names = ("ep_ms", "sep_ms", "ep_eager_ms", "sep_eager_ms", "gpytorch_ms")
            records.append(
                {
                    "M": M,
                    "batch": batch,
                    "dtype": dtype,
                    **dict(zip(names, ms, strict=True)),
                }
            )
    return records


def time_devices(folder: str | None) -> list[dict[str, Any]]:
    """Seconds of a fit on one core and on the GPU, by size.

    The first fit of a process on each device is not counted.
    """
    records = []
    rng = np.random.RandomState(1000)
    for name, rows in DEVICE_SIZES:
        X, y = sets.load(name, folder)
        kept = rng.permutation(len(X))[:rows]
        for effort in ("fast", "balanced"):
            seconds = {}
            for device in ("cpu", "cuda"):
                clf = GPClassifier(effort=effort, device=device, random_state=0)
                if not records:
                    clf.fit(X[kept], y[kept])
                begin = time.perf_counter()
                clf.fit(X[kept], y[kept])
                seconds[device] = time.perf_counter() - begin
            row = {
                "set": name,
                "rows": len(kept),
                "classes": len(clf.classes_),
                "effort": effort,
                **seconds,
            }
            print("  ".join(map(str, row.values())), flush=True)
            records.append(row)
    return records


def write_csv(path: str | None, records: list[dict[str, Any]]) -> None:
    if path is not None:
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, records[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(records)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data")
    parser.add_argument(
        "--parts", nargs="+", default=["step", "train", "peer", "devices"]
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument(
        "--eager", action="store_true", help="do not record the steps as CUDA graphs"
    )
    parser.add_argument("--csv")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        f"torch {torch.__version__}, {torch.cuda.get_device_name()}; recorded steps: "
        f"{not args.eager}"
    )
    if args.eager:
        runs.records_steps = lambda *_: False  # type: ignore[assignment]
    if "step" in args.parts:
        write_csv(
            args.csv and args.csv.replace(".csv", "_steps.csv"), time_all_steps(9)
        )
    data = sets.standardize("mnist", sets.split("mnist", 0, args.data))
    if "devices" in args.parts:
        write_csv(
            args.csv and args.csv.replace(".csv", "_devices.csv"),
            time_devices(args.data),
        )
    records: list[dict[str, Any]] = []
    print("seconds to test NLL of " + ", ".join(map(str, LEVELS)))
    if "train" in args.parts:
        for run in RUNS:
            records += (rows := train(data, *run, args.seconds))
            print_levels(rows)
            write_csv(args.csv, records)
    if "peer" in args.parts:
        for rate in (0.01, 0.1):
            records += (rows := train_gpytorch(data, 200, 1000, rate, args.seconds))
            print_levels(rows)
            write_csv(args.csv, records)


if __name__ == "__main__":
    main()
