"""Time of one mini-batch step of EP, of SEP and of GPyTorch's SVGP, in one run.

All train C latent functions with M inducing points each, ARD-RBF kernels and learnt
inducing points by Adam, with the same batch size, precision, device and threads; our
steps run as in a default fit, with one thread where they are small. GPyTorch: SVGP with
a softmax likelihood, as in its documentation. The runs are interleaved, so that a noisy
machine disturbs all equally. A row is the median over rounds.

    python benchmarks/step_time.py [--rounds 15] [--steps 10] [--device cpu] [--csv
    FILE]
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `experiments`

import numpy as np
import torch

from cavity import GPClassifier, Training
from cavity.common.ranks import Local
from cavity.engine.batches.in_memory import Batch, RowsInMemory
from cavity.engine.inference import Engine, State
from cavity.engine.training.guard import Guard
from cavity.engine.training.optimisers import OPTIMISERS
from cavity.engine.training.threads import flush_denormals, limit_threads
from cavity.fitting import adapter
from cavity.fitting.options.configuration import read_classifier
from cavity.fitting.options.plan import TableSize
from cavity.fitting.options.policy.training import plan_training
from cavity.tables import inducing_points as choosing
from cavity.tables.table import Table

SIZES = [(3, 50, 200, 8), (10, 100, 200, 16), (10, 200, 200, 50)]  # C, M, batch, D
ROWS = 10_000


def make_table(C: int, D: int) -> Table:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, D))
    y = (X @ rng.standard_normal((D, C))).argmax(1)
    return Table(X, y, np.ones(ROWS), C)


class Start(NamedTuple):
    """Everything that a run starts with."""

    engine: Engine
    rows: RowsInMemory
    state: State


def make_start(
    method: str, C: int, M: int, batch: int, D: int, dtype: str, device: str
) -> Start:
    data = make_table(C, D)
    rng = np.random.default_rng(0)
    estimator = GPClassifier(
        method, batch_size=batch, training=Training(dtype=dtype), device=device
    )
    begin = data.start(rng)
    Z = choosing.choose("random", begin.candidates, M, data.n_latent, rng)
    config = read_classifier(estimator.get_params(deep=False))
    plan = plan_training(config, TableSize.of(data, D), M)
    engine = adapter.make_engine(
        adapter.make_prior(config, plan, data, begin, Z), data, config, plan
    )
    rows = adapter.copy_rows(data, config.dtype, config.device)
    return Start(
        engine, rows, adapter.make_first_state(engine, rows, config, plan, 1.0, 0)
    )


def repeat_batches(rows: RowsInMemory, batch: int) -> Iterator[Batch]:
    """Shuffled batches, pass after pass."""
    generator = torch.Generator().manual_seed(0)
    while True:
        yield from rows.batches(batch, generator)


@contextmanager
def set_up(C: int, M: int, batch: int, dtype: str) -> Iterator[None]:
    """Set torch as a fit does: one thread for small steps, no denormal numbers in
    float32.
    """
    with limit_threads(C * M * M * batch), flush_denormals(getattr(torch, dtype)):
        yield


def make_cavity_step(
    method: str, C: int, M: int, batch: int, D: int, dtype: str, device: str
) -> Callable[[], None]:
    """Make the step of a default fit."""
    engine, rows, state = make_start(method, C, M, batch, D, dtype, device)
    batches = repeat_batches(rows, batch)
    guard = Guard(engine, Local())

    def step() -> None:
        nonlocal state
        state, info = guard.advance(state, next(batches), OPTIMISERS["adam"], False)
        assert info is not None

    return step


def make_latent_processes(Z: torch.Tensor, lengthscale: float | None = None) -> Any:
    """Return GPyTorch's model of C independent processes with ARD-RBF kernels, each
    with its own inducing points [C M D].
    """
    import gpytorch

    class LatentProcesses(gpytorch.models.ApproximateGP):
        def __init__(self, Z: torch.Tensor, lengthscale: float | None = None) -> None:
            C, M, D = Z.shape
            shape = torch.Size([C])
            q = gpytorch.variational.CholeskyVariationalDistribution(
                M, batch_shape=shape
            )
            inner = gpytorch.variational.VariationalStrategy(
                self, Z, q, learn_inducing_locations=True
            )
            super().__init__(
                gpytorch.variational.IndependentMultitaskVariationalStrategy(
                    inner, num_tasks=C
                )
            )
            self.mean_module = gpytorch.means.ConstantMean(batch_shape=shape)
            kernel = gpytorch.kernels.RBFKernel(ard_num_dims=D, batch_shape=shape)
            if lengthscale is not None:
                kernel.lengthscale = lengthscale
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel, batch_shape=shape)

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    return LatentProcesses(Z, lengthscale)


def make_gpytorch_step(
    C: int, M: int, batch: int, D: int, dtype: str, device: str
) -> Callable[[], None]:
    import gpytorch

    kind = getattr(torch, dtype)
    data = make_table(C, D)
    X = torch.tensor(data.X, dtype=kind, device=device)
    y = torch.tensor(data.y, device=device)
    model = make_latent_processes(X[:M].expand(C, M, D).clone()).to(device, kind)
    likelihood = gpytorch.likelihoods.SoftmaxLikelihood(
        num_classes=C, mixing_weights=False
    ).to(device, kind)
    model.train(), likelihood.train()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=ROWS)
    optimiser = torch.optim.Adam(
        [*model.parameters(), *likelihood.parameters()], lr=0.01
    )
    generator = torch.Generator().manual_seed(0)

    def step() -> None:
        index = torch.randint(ROWS, (batch,), generator=generator).to(device)
        optimiser.zero_grad()
        loss = -bound(model(X[index]), y[index])
        loss.backward()
        optimiser.step()

    return step


def time_steps(step: Callable[[], None], steps: int, device: str) -> float:
    """Milliseconds per step."""
    if device != "cpu":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    if device != "cpu":
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begin) / steps


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--csv")
    args = parser.parse_args()
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, {args.device}; "
        f"ms per step, median of {args.rounds} rounds"
    )
    print(
        f"{'C':>3} {'M':>4} {'batch':>5} {'D':>3} {'dtype':>8} {'EP':>8} {'SEP':>8} "
        f"{'GPyTorch':>9} {'x EP':>6} {'x SEP':>6}"
    )
    records = []
    for C, M, batch, D in SIZES:
        for dtype in ("float64", "float32"):
            size = (C, M, batch, D, dtype, args.device)
            steps = {
                "ep": make_cavity_step("ep", *size),
                "sep": make_cavity_step("sep", *size),
                "gpytorch": make_gpytorch_step(*size),
            }
            ours = partial(set_up, C, M, batch, dtype)
            settings = {"ep": ours, "sep": ours, "gpytorch": nullcontext}
            times: dict[str, list[float]] = {name: [] for name in steps}
            for step in steps.values():
                time_steps(step, 3, args.device)  # warm up
            for _ in range(args.rounds):
                for name, step in steps.items():
                    with settings[name]():
                        times[name].append(time_steps(step, args.steps, args.device))
            ep, sep, peer = (
                statistics.median(times[name]) for name in ("ep", "sep", "gpytorch")
            )
            print(
                f"{C:3d} {M:4d} {batch:5d} {D:3d} {dtype:>8} {ep:8.2f} {sep:8.2f} "
                f"{peer:9.2f} {peer / ep:6.1f} {peer / sep:6.1f}",
                flush=True,
            )
            records.append(
                [
                    C,
                    M,
                    batch,
                    D,
                    dtype,
                    args.device,
                    ep,
                    sep,
                    peer,
                    peer / ep,
                    peer / sep,
                ]
            )
    if args.csv:
        with open(args.csv, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(
                "C,M,batch,D,dtype,device,ep_ms,sep_ms,gpytorch_ms,ratio_ep,ratio_sep".split(
                    ","
                )
            )
            writer.writerows(records)


if __name__ == "__main__":
    sys.exit(main())
