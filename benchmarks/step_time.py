"""One mini-batch step of EP and of SEP against one step of GPyTorch's SVGP, side by side in one run.

Both train C latent functions with M inducing points each, ARD-RBF kernels and learnt inducing points, by Adam, on the same
batches: same C, M, batch size, D, precision, device and threads. GPyTorch: SVGP with a softmax likelihood, as in its documentation.
The runs are interleaved, so that a noisy machine disturbs all alike; a row is the median over rounds.

    python benchmarks/step_time.py [--rounds 15] [--steps 10] [--device cpu] [--csv FILE]
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from cavity import GPClassifier
from cavity import inducing as choosing
from cavity.data import Batch, Rows
from cavity.distributed import Local
from cavity.estimators import build, tables
from cavity.estimators.options import read
from cavity.inference import Engine, State
from cavity.training.optimisers import OPTIMISERS

SIZES = [(3, 50, 200, 8), (10, 100, 200, 16), (10, 200, 200, 50)]  # C, M, batch, D
ROWS = 10_000


def table(C: int, D: int) -> tables.Table:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, D))
    y = (X @ rng.standard_normal((D, C))).argmax(1)
    return tables.Table(X, y, np.ones(ROWS), C)


class Setting(NamedTuple):
    """A run that has not begun."""

    engine: Engine
    rows: Rows
    state: State


def setting(method: str, C: int, M: int, batch: int, D: int, dtype: str, device: str) -> Setting:
    data, rng = table(C, D), np.random.default_rng(0)
    estimator = GPClassifier(method, batch_size=batch, dtype=dtype, device=device)
    begin = data.start(rng)
    Z = choosing.choose("random", begin.pool, M, data.n_latent, rng)
    options = read(estimator, ROWS, data.n_latent, M)
    engine = build.engine(build.prior(estimator, data, begin, Z, options), data, options)
    rows = data.on_device(options)
    return Setting(engine, rows, build.first_state(engine, rows, options, 1.0, 0))


def feed(rows: Rows, batch: int) -> Iterator[Batch]:
    """Shuffled batches without end."""
    generator = torch.Generator().manual_seed(0)
    while True:
        yield from rows.batches(batch, generator)


def cavity_step(
    method: str, C: int, M: int, batch: int, D: int, dtype: str, device: str
) -> Callable[[], None]:
    engine, rows, state = setting(method, C, M, batch, D, dtype, device)
    pieces = feed(rows, batch)

    def step() -> None:
        nonlocal state
        state, info = engine.step(state, next(pieces), Local(), OPTIMISERS["adam"], False)
        assert not bool(info.failed)

    return step


def gpytorch_step(C: int, M: int, batch: int, D: int, dtype: str, device: str) -> Callable[[], None]:
    import gpytorch

    kind = getattr(torch, dtype)
    data = table(C, D)
    X = torch.tensor(data.X, dtype=kind, device=device)
    y = torch.tensor(data.y, device=device)

    class SVGP(gpytorch.models.ApproximateGP):
        def __init__(self, Z: torch.Tensor) -> None:
            q = gpytorch.variational.CholeskyVariationalDistribution(M, batch_shape=torch.Size([C]))
            strategy = gpytorch.variational.IndependentMultitaskVariationalStrategy(
                gpytorch.variational.VariationalStrategy(self, Z, q, learn_inducing_locations=True),
                num_tasks=C,
            )
            super().__init__(strategy)
            shape = torch.Size([C])
            self.mean_module = gpytorch.means.ConstantMean(batch_shape=shape)
            rbf = gpytorch.kernels.RBFKernel(ard_num_dims=D, batch_shape=shape)
            self.covar_module = gpytorch.kernels.ScaleKernel(rbf, batch_shape=shape)

        def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model = SVGP(X[:M].expand(C, M, D).clone()).to(device, kind)
    likelihood = gpytorch.likelihoods.SoftmaxLikelihood(num_classes=C, mixing_weights=False).to(device, kind)
    model.train(), likelihood.train()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=ROWS)
    optimiser = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
    generator = torch.Generator().manual_seed(0)

    def step() -> None:
        index = torch.randint(ROWS, (batch,), generator=generator).to(device)
        optimiser.zero_grad()
        loss = -bound(model(X[index]), y[index])
        loss.backward()
        optimiser.step()

    return step


def milliseconds(step: Callable[[], None], steps: int, device: str) -> float:
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
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, {args.device}; ms a step, median of {args.rounds} rounds"
    )
    print(
        f"{'C':>3} {'M':>4} {'batch':>5} {'D':>3} {'dtype':>8} {'EP':>8} {'SEP':>8} {'GPyTorch':>9} {'x EP':>6} {'x SEP':>6}"
    )
    records = []
    for C, M, batch, D in SIZES:
        for dtype in ("float64", "float32"):
            size = (C, M, batch, D, dtype, args.device)
            steps = {
                "ep": cavity_step("ep", *size),
                "sep": cavity_step("sep", *size),
                "gpytorch": gpytorch_step(*size),
            }
            times: dict[str, list[float]] = {name: [] for name in steps}
            for step in steps.values():
                milliseconds(step, 3, args.device)  # warm up
            for _ in range(args.rounds):
                for name, step in steps.items():
                    times[name].append(milliseconds(step, args.steps, args.device))
            ep, sep, peer = (statistics.median(times[name]) for name in ("ep", "sep", "gpytorch"))
            print(
                f"{C:3d} {M:4d} {batch:5d} {D:3d} {dtype:>8} {ep:8.2f} {sep:8.2f} {peer:9.2f} {peer / ep:6.1f} {peer / sep:6.1f}",
                flush=True,
            )
            records.append([C, M, batch, D, dtype, args.device, ep, sep, peer, peer / ep, peer / sep])
    if args.csv:
        with open(args.csv, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow("C,M,batch,D,dtype,device,ep_ms,sep_ms,gpytorch_ms,ratio_ep,ratio_sep".split(","))
            writer.writerows(records)


if __name__ == "__main__":
    sys.exit(main())
