"""How far each method is from exact inference: simulated problems, fixed
hyper-parameters, and a long Gibbs run as the judge.

Features are normal in two dimensions. Latent functions are draws of the prior, one per
class, and the label is the class with the largest latent value after noise. Every
method gets the true kernel and noise and learns nothing, so what differs is inference.
The score is the KL divergence from the judge's class probabilities to the method's,
averaged over test rows, in nats.

The judge samples the posterior of the model without inducing points, in independent
chains. Their spread gives the judge's own Monte Carlo error, by which the KL is too
large on average; it is subtracted. The softmax methods have another noise (Gumbel
instead of normal); their kernel variance is scaled so that the noise has the same share
of the variance.

Problems that already have rows in the folder are not computed again.

    # about a minute per problem on one core
    python benchmarks/accuracy.py [--times 1] [--results FOLDER]
    # write docs/results/accuracy.md and its figure
    python -m experiments page
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import csv
import itertools
import sys
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]  # for `experiments` and `reference`

import numpy as np
import torch

from cavity import GPClassifier, methods
from cavity.fitting.options import nest
from cavity.kernels import RBF
from experiments.accuracy import EXACT, read, table
from experiments.jobs import versions
from reference.gibbs import chain_probabilities, gibbs_chains
from reference.kernels import rbf

RESULTS = ROOT / "benchmarks" / "results"
NOISES = (0.1, 0.5, 2.0)
METHODS: dict[str, methods.Method] = {
    "EP": methods.EP(),
    "SEP": methods.SEP(),
    "PowerEP": methods.PowerEP(),
    "REP(epsilon=0)": methods.REP(epsilon=0),
    "GFITC": methods.GFITC(),
    "VI, robust-max": methods.VI(likelihood="robust-max"),
    "VI, softmax": methods.VI(likelihood="softmax"),
    "Laplace": methods.Laplace(),
}
SLOW = {
    "VI, softmax": 200,
    "PowerEP": 200,
    "VI, robust-max": 600,
}  # largest C·N, and only without sparsity
SOFT = ("VI, softmax", "Laplace")
COLUMNS = [
    "C",
    "N",
    "M",
    "noise",
    "problem",
    "method",
    "kl",
    "judge",
    "seconds",
    "epochs",
    "versions",
]


class Setting(NamedTuple):
    """Problems of one size."""

    C: int  # classes
    N: int  # training rows
    M: tuple[int, ...]  # inducing points; N: no sparsity
    problems: int


SETTINGS = (
    Setting(2, 100, (100,), 4),
    Setting(3, 20, (20,), 4),
    Setting(3, 60, (60, 15), 4),
    Setting(5, 60, (60,), 4),
    Setting(10, 60, (60, 15), 4),
)


class Length(NamedTuple):
    """How long the judge samples, and at how many test rows it is asked."""

    chains: int = 32
    sweeps: int = 300
    burn_in: int = 150
    every: int = 10
    test_rows: int = 30


class Problem(NamedTuple):
    """Rows, the first N for training, their kernel matrix, and the labels of the first
    N.
    """

    X: np.ndarray
    K: np.ndarray
    y: np.ndarray


class Verdict(NamedTuple):
    """The judge's class probabilities at the test rows, and by how much they make a KL
    too large.
    """

    p: np.ndarray  # (B, n, C)
    error: np.ndarray  # (B, n)


def draw_problem(
    C: int, N: int, test_rows: int, noise: float, rng: np.random.Generator
) -> Problem:
    """A draw in which every class has a training row (the posterior given the labels is
    not changed by that).
    """
    while True:
        X = rng.normal(size=(N + test_rows, 2))
        K = rbf(X, X, 1.0, 1.0)
        f = np.linalg.cholesky(K + 1e-9 * np.eye(len(X))) @ rng.normal(size=(len(X), C))
        y = (f[:N] + np.sqrt(noise) * rng.normal(size=(N, C))).argmax(1)
        if len(set(y)) == C:
            return Problem(X, K, y)


def judge(
    problems: list[Problem], C: int, noise: float, length: Length, M: int | None = None
) -> Verdict:
    """Exact inference up to Monte Carlo error; with M, for the sparse model with the
    first M rows as inducing points.
    """
    y, K = np.stack([p.y for p in problems]), np.stack([p.K for p in problems])
    N, diagonal = y.shape[1], np.diagonal(K, axis1=1, axis2=2)
    if M is not None:
        K = K[:, :, :M] @ np.linalg.solve(K[:, :M, :M] + 1e-6 * np.eye(M), K[:, :M])
        rows = np.arange(N)
        K[:, rows, rows] = diagonal[:, :N]
    samples = gibbs_chains(
        K[:, :N, :N],
        y,
        noise,
        C,
        length.chains,
        length.sweeps,
        length.burn_in,
        length.every,
    )
    p = chain_probabilities(
        samples, K[:, :N, :N], noise, K[:, N:, :N], diagonal[0, N:]
    )  # (B, chains, n, C)
    mean = p.mean(1)
    return Verdict(mean, (p.var(1, ddof=1) / length.chains / (2 * mean)).sum(-1))


def fit(
    name: str, problem: Problem, C: int, M: int, noise: float
) -> tuple[np.ndarray, dict[str, Any]]:
    """Class probabilities at the test rows, and what the fit cost."""
    N, begin = len(problem.y), time.process_time()
    gumbel = np.pi**2 / (
        3 if C == 2 else 6
    )  # variance of the noise in a softmax; of the difference of two in a logistic
    options: dict[str, Any] = {"kernel": RBF(1.0, 1.0), "noise": noise}
    if name in SOFT:
        options = {"kernel": RBF(1.0, gumbel / noise), "noise": 0.0}
    if name == "Laplace":
        del options["noise"]
    if (
        name == "VI, robust-max"
    ):  # slow, and so far from the judge that more epochs do not change the table
        options["tol"] = 1e-3
    clf = GPClassifier(
        METHODS[name],
        **nest(
            inducing=problem.X[:M], learn=(), max_epochs=2000, device="cpu", **options
        ),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        p = clf.fit(problem.X[:N], problem.y).predict_proba(problem.X[N:])
    return p, {
        "seconds": round(time.process_time() - begin, 2),
        "epochs": clf.n_epochs_,
    }


def divergence(verdict: Verdict, i: int, q: np.ndarray) -> float:
    """KL(judge ‖ q) of problem i, without what the judge's error adds to it."""
    p = np.maximum(verdict.p[i], 1e-12)
    return float(((p * np.log(p / q)).sum(-1) - verdict.error[i]).mean())


def measure(
    setting: Setting, noise: float, length: Length, seed: int = 0, first: int = 0
) -> list[dict[str, Any]]:
    """One row per problem from number `first` on, number of inducing points and method."""
    C, N = setting.C, setting.N
    rng = np.random.default_rng([seed, C, N, round(100 * noise)])
    drawn = [
        draw_problem(C, N, length.test_rows, noise, rng)
        for _ in range(setting.problems)
    ]
    problems = drawn[first:]
    truth, rows = judge(problems, C, noise, length), []
    for M in setting.M:
        sparse = judge(problems, C, noise, length, M) if M < N else None
        for i, problem in enumerate(problems):
            facts = {"C": C, "N": N, "M": M, "noise": noise, "problem": first + i}
            facts["judge"] = f"{truth.error[i].mean():.2e}"
            for name in METHODS:
                if name not in SLOW or (M == N and SLOW[name] >= C * N):
                    q, cost = fit(name, problem, C, M, noise)
                    rows.append(
                        facts
                        | {"method": name, "kl": f"{divergence(truth, i, q):.3e}"}
                        | cost
                    )
            if sparse is not None:
                kl = divergence(truth, i, sparse.p[i]) - float(sparse.error[i].mean())
                rows.append(
                    facts
                    | {"method": EXACT, "kl": f"{kl:.3e}", "seconds": "", "epochs": ""}
                )
    return rows


def count_problems(results: Path, setting: Setting, noise: float) -> int:
    """The number of problems of a setting that have rows."""
    rows = read(results) if (results / "accuracy.csv").exists() else []
    same = [
        row
        for row in rows
        if (row["C"], row["N"], row["noise"]) == (setting.C, setting.N, noise)
    ]
    return 1 + max((row["problem"] for row in same), default=-1)


def add_rows(results: Path, rows: list[dict[str, Any]]) -> None:
    """Append rows to the file, which gets its header with the first of them."""
    path = results / "accuracy.csv"
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(row | {"versions": versions()} for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--times", type=int, default=1, help="so many times the problems"
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for setting, noise in itertools.product(SETTINGS, NOISES):
        grown = setting._replace(problems=args.times * setting.problems)
        done = count_problems(args.results, setting, noise)
        if done < grown.problems:
            add_rows(args.results, measure(grown, noise, Length(), first=done))
            print(
                f"C={setting.C} N={setting.N} noise={noise}: {time.process_time():.0f} "
                f"s",
                flush=True,
            )
    rows = read(args.results)
    print(table(rows, sparse=False), table(rows, sparse=True), sep="\n\n")


if __name__ == "__main__":
    main()
