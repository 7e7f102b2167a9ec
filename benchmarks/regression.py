"""The regression experiments of the review: R² on test rows against seconds, with
GPyTorch in the same run.

Two panels, as in section 3 of the review: natural gradients against L-BFGS-B on a mean
and a Cholesky factor; the collapsed bound with k-means points ("vi-means") against
them. Data: a draw from a Gaussian process, and two data sets of scikit-learn: diabetes,
and wine with alcohol as the target, predicted from the other measurements. GPyTorch's
SGPR also learns its inducing points, as is its default. Seconds are CPU seconds of one
core without the evaluation, so other processes do not count.

    python benchmarks/regression.py [--rows 800] [--points 50] [--seconds 4]
                                    [--csv FILE] [--png FILE]
    # the table of docs/results/methods.md and the figure, from the CSV
    python benchmarks/regression.py --table
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import csv
import itertools
import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `experiments`

import numpy as np
import torch
from sklearn.metrics import r2_score

from cavity import GPRegressor
from cavity.fitting.options import nest
from experiments.jobs import versions
from experiments.regression import Evaluation, Recorder

RESULTS = Path(__file__).parent / "results"
FIXED = {
    "inducing": "kmeans",
    "learn": ("kernel", "noise"),
    "random_state": 0,
    "tol": 0.0,
    "max_epochs": 100_000,
}
METHODS: dict[str, dict[str, Any]] = {
    "svi-natural": {"method": "svi", "batch_size": 100, "max_epochs": 200},
    "vi-means": {"method": "vi"},
    "exact": {"method": "exact", "inducing": "auto"},
}
STORED = ("svi-L-BFGS-B",)  # rows of gradient steps on q, which went with version 0.4
PEERS = ("GPyTorch SGPR", "GPyTorch exact")
ORDER = [*METHODS, *STORED, *PEERS]
PANELS = {
    "stochastic variational inference": ["svi-natural", "svi-L-BFGS-B"],
    "collapsed or not": [
        "vi-means",
        "svi-L-BFGS-B",
        "svi-natural",
        "exact",
        "GPyTorch SGPR",
        "GPyTorch exact",
    ],
}


def make_tables(rows: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Features and targets, each with mean 0 and standard deviation 1."""
    from sklearn.datasets import load_diabetes, load_wine

    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 2))
    d2 = ((X[:, None] - X[None]) ** 2).sum(-1)
    f = np.linalg.cholesky(
        np.exp(-0.5 * d2 / 0.5**2) + 1e-6 * np.eye(rows)
    ) @ rng.normal(size=rows)
    wine = load_wine().data
    found = {
        f"GP draw, N={rows}": (X, f + 0.3 * rng.normal(size=rows)),
        "diabetes": load_diabetes(return_X_y=True),
        "wine, alcohol": (wine[:, 1:], wine[:, 0]),
    }
    return {
        name: ((X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std())
        for name, (X, y) in found.items()
    }


def fit_cavity(
    options: dict[str, Any], points: int, train: Any, test: Any, limit: float
) -> list[tuple[float, float]]:
    evaluation = Evaluation(*test, limit)
    options = (
        FIXED
        | {"n_inducing": points, "normalize_y": False, "callbacks": [evaluation]}
        | options
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        GPRegressor(**nest(**options)).fit(*train)
    return evaluation.recorder.points


def fit_gpytorch(
    sparse: bool, points: int, train: Any, test: Any, limit: float
) -> list[tuple[float, float]]:
    """GPyTorch's exact GP, or SGPR with the same number of points, trained by Adam at
    0.1.
    """
    import gpytorch
    from sklearn.cluster import kmeans_plusplus

    X, y, X_test = (torch.tensor(t) for t in (*train, test[0]))
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    kernel = gpytorch.kernels.ScaleKernel(
        gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1])
    )

    class Model(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(X, y, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module: Any = kernel
            if sparse:
                Z = torch.tensor(kmeans_plusplus(train[0], points, random_state=0)[0])
                self.covar_module = gpytorch.kernels.InducingPointKernel(
                    kernel, Z, likelihood
                )

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    model = Model().double()
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    recorder = Recorder()

    def r2() -> float:
        model.eval(), likelihood.eval()
        with torch.no_grad():
            mean = model(X_test).mean.numpy()
        model.train(), likelihood.train()
        return float(r2_score(test[1], mean))

    for step in range(100):
        adam.zero_grad()
        (-evidence(model(X), y)).backward()
        adam.step()
        over = recorder.seconds() > limit
        recorder.record(r2, last=over or step == 99)
        if over:
            break
    return recorder.points


def measure(
    name: str, points: int, train: Any, test: Any, limit: float
) -> list[tuple[float, float]]:
    """Seconds and R² of one method."""
    if name in METHODS:
        return fit_cavity(METHODS[name], points, train, test, limit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit_gpytorch(name.endswith("SGPR"), points, train, test, limit)


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a CSV."""
    with path.open(newline="") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    return [
        row | {name: float(row[name]) for name in ("seconds", "r2")} for row in rows
    ]


def group_curves(
    rows: list[dict[str, Any]],
) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The rows of each data set and method."""
    named = itertools.groupby(rows, lambda row: (row["data"], row["method"]))
    return {name: list(found) for name, found in named}


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown table: R² at the end of each curve, and the seconds after which it stays
    within 0.01 of that.
    """
    found = group_curves(rows)
    names = list(dict.fromkeys(data for data, _ in found))
    lines = ["| method | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for method in dict.fromkeys(method for _, method in found):
        lines.append(
            f"| {method} | "
            + " | ".join(_cell(found[name, method]) for name in names)
            + " |"
        )
    return "\n".join(lines)


def _cell(curve: list[dict[str, Any]]) -> str:
    last = curve[-1]["r2"]
    off = [i for i, row in enumerate(curve) if abs(row["r2"] - last) > 0.01]
    settled = curve[off[-1] + 1 if off else 0]["seconds"]
    return f"{last:.3f}, {settled:.2g} s"


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw one row of panels per data set, with the curves that the rows have."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["data"] for row in rows))
    figure = Figure(figsize=(13, 3.6 * len(names)), layout="constrained")
    axes = figure.subplots(len(names), len(PANELS), squeeze=False)
    curves = group_curves(rows)
    for line, data in zip(axes, names, strict=True):
        best = max(row["r2"] for row in rows if row["data"] == data)
        for axis, (title, methods) in zip(line, PANELS.items(), strict=True):
            for method in methods:
                found = curves.get((data, method))
                if found is None:
                    continue
                colour = f"C{ORDER.index(method)}"
                axis.plot(
                    [r["seconds"] for r in found],
                    [r["r2"] for r in found],
                    colour,
                    label=method,
                )
            axis.set(
                xscale="log",
                ylim=(-0.05, best + 0.05),
                xlabel="seconds",
                ylabel="R²",
                title=f"{data}: {title}",
            )
            axis.legend(fontsize=7)
    figure.savefig(path, dpi=60)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=800)
    parser.add_argument("--points", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--tables", nargs="+", help="default: all")
    measured = [method for method in ORDER if method not in STORED]
    parser.add_argument(
        "--methods", nargs="+", choices=measured, default=measured, metavar="METHOD"
    )
    parser.add_argument("--csv", type=Path, default=RESULTS / "regression.csv")
    parser.add_argument("--png", type=Path, default=RESULTS / "regression.png")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args(arguments)
    if args.table:
        print(table(read(args.csv)))
        draw(read(args.csv), args.png)
        return
    torch.set_num_threads(1)
    warm = np.random.default_rng(0).normal(size=(60, 2))
    fit_cavity(
        METHODS["svi-natural"], 10, (warm, warm[:, 0]), (warm, warm[:, 0]), 0.1
    )  # warm up
    with args.csv.open("w", newline="") as file:
        writer = csv.DictWriter(
            file,
            ["data", "method", "train", "test", "points", "seconds", "r2", "versions"],
        )
        writer.writeheader()
        for data, (X, y) in make_tables(args.rows).items():
            if args.tables is not None and data not in args.tables:
                continue
            is_test = np.random.default_rng(1).random(len(y)) < 0.25
            train = (X[~is_test], y[~is_test])
            test = (X[is_test], y[is_test])
            facts = {
                "data": data,
                "train": len(train[1]),
                "test": len(test[1]),
                "points": args.points,
            }
            for method in args.methods:
                found = measure(method, args.points, train, test, args.seconds)
                for seconds, r2 in found:
                    figures = {"seconds": f"{seconds:.4f}", "r2": f"{r2:.5f}"}
                    writer.writerow(
                        facts | {"method": method} | figures | {"versions": versions()}
                    )
                print(
                    f"{data:18} {method:15} R² {found[-1][1]:.4f} after "
                    f"{found[-1][0]:6.2f} s",
                    flush=True,
                )
    draw(read(args.csv), args.png)
    print(f"{args.csv} and {args.png} written")


if __name__ == "__main__":
    main()
