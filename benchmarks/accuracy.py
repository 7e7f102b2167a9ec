"""How far each method is from exact inference: simulated problems, fixed hyper-parameters, and a long Gibbs run as the judge.

Features are normal in two dimensions. Latent functions are draws of the prior, one per class, and the label is the class with
the largest latent value after noise. Every method gets the true kernel and noise and learns nothing, so what differs is
inference. The score is the KL divergence from the judge's class probabilities to the method's, averaged over test rows, in nats.

The judge samples the posterior of the model without inducing points, in independent chains. Their spread gives the judge's own
Monte Carlo error, by which the KL is too large on average; it is subtracted. The softmax methods have another noise (Gumbel
instead of normal); their kernel variance is scaled so that the noise has the same share of the variance.

    python benchmarks/accuracy.py [--times 1] [--csv FILE]    # about ten minutes on one core; --times 5: five times the problems
    python benchmarks/accuracy.py --page                      # docs/accuracy.md and its figure, from the CSV
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import csv
import hashlib
import itertools
import sys
import time
import warnings
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]  # for `experiments` and `reference`

import numpy as np
import torch

from cavity import GPClassifier, methods
from cavity.kernels import RBF
from experiments.jobs import versions
from experiments.tables import markdown
from reference.gibbs import chain_probabilities, gibbs_chains
from reference.kernels import rbf

CSV = ROOT / "benchmarks" / "results" / "accuracy.csv"
PAGE, FIGURE = ROOT / "docs" / "accuracy.md", ROOT / "docs" / "figures" / "accuracy.png"
NOISES = (0.1, 0.5, 2.0)
METHODS: dict[str, methods.Method] = {
    "EP": methods.EP(),
    "SEP": methods.SEP(),
    "PowerEP": methods.PowerEP(),
    "REP(epsilon=0)": methods.REP(epsilon=0),
    "GFITC": methods.GFITC(),
    "VI, robust-max": methods.VI(),
    "VI, softmax": methods.VI(likelihood="softmax"),
    "Laplace": methods.Laplace(),
}
SLOW = ("PowerEP", "VI, softmax")  # left out with more than three classes
SOFT = ("VI, softmax", "Laplace")
EXACT = "exact on these points"  # a Gibbs run of the sparse (FITC) model


class Setting(NamedTuple):
    """Problems of one size."""

    C: int  # classes
    N: int  # training rows
    M: tuple[int, ...]  # inducing points; N: no sparsity
    problems: int


SETTINGS = (
    Setting(2, 100, (100, 25), 6),
    Setting(3, 20, (20,), 6),
    Setting(3, 60, (60, 15), 4),
    Setting(5, 60, (60,), 3),
    Setting(10, 60, (60, 15), 3),
)


class Length(NamedTuple):
    """How long the judge samples, and at how many test rows it is asked."""

    chains: int = 48
    sweeps: int = 500
    burn_in: int = 200
    every: int = 10
    test_rows: int = 30


class Problem(NamedTuple):
    """Rows, the first N for training, their kernel matrix, and the labels of the first N."""

    X: np.ndarray
    K: np.ndarray
    y: np.ndarray


class Verdict(NamedTuple):
    """The judge's class probabilities at the test rows, and by how much they make a KL too large."""

    p: np.ndarray  # (B, n, C)
    error: np.ndarray  # (B, n)


def draw_problem(C: int, N: int, test_rows: int, noise: float, rng: np.random.Generator) -> Problem:
    """A draw in which every class has a training row (the posterior given the labels is not changed by that)."""
    while True:
        X = rng.normal(size=(N + test_rows, 2))
        K = rbf(X, X, 1.0, 1.0)
        f = np.linalg.cholesky(K + 1e-9 * np.eye(len(X))) @ rng.normal(size=(len(X), C))
        y = (f[:N] + np.sqrt(noise) * rng.normal(size=(N, C))).argmax(1)
        if len(set(y)) == C:
            return Problem(X, K, y)


def judge(problems: list[Problem], C: int, noise: float, length: Length, M: int | None = None) -> Verdict:
    """Exact inference up to Monte Carlo error; with M, for the sparse model with the first M rows as inducing points."""
    y, K = np.stack([p.y for p in problems]), np.stack([p.K for p in problems])
    N, diagonal = y.shape[1], np.diagonal(K, axis1=1, axis2=2)
    if M is not None:
        K = K[:, :, :M] @ np.linalg.solve(K[:, :M, :M] + 1e-6 * np.eye(M), K[:, :M])
        rows = np.arange(N)
        K[:, rows, rows] = diagonal[:, :N]
    samples = gibbs_chains(
        K[:, :N, :N], y, noise, C, length.chains, length.sweeps, length.burn_in, length.every
    )
    p = chain_probabilities(samples, K[:, :N, :N], noise, K[:, N:, :N], diagonal[0, N:])  # (B, chains, n, C)
    mean = p.mean(1)
    return Verdict(mean, (p.var(1, ddof=1) / length.chains / (2 * mean)).sum(-1))


def fit(name: str, problem: Problem, C: int, M: int, noise: float) -> tuple[np.ndarray, dict[str, Any]]:
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
    if name == "VI, robust-max":  # slow, and so far from the judge that more epochs do not change the table
        options["tol"] = 1e-3
    clf = GPClassifier(
        METHODS[name], inducing=problem.X[:M], learn=(), max_epochs=2000, device="cpu", **options
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        p = clf.fit(problem.X[:N], problem.y).predict_proba(problem.X[N:])
    return p, {"seconds": round(time.process_time() - begin, 2), "epochs": clf.n_epochs_}


def divergence(verdict: Verdict, i: int, q: np.ndarray) -> float:
    """KL(judge ‖ q) of problem i, without what the judge's error adds to it."""
    p = np.maximum(verdict.p[i], 1e-12)
    return float(((p * np.log(p / q)).sum(-1) - verdict.error[i]).mean())


def measure(setting: Setting, noise: float, length: Length, seed: int = 0) -> list[dict[str, Any]]:
    """One row per problem, number of inducing points and method."""
    C, N = setting.C, setting.N
    rng = np.random.default_rng([seed, C, N, round(100 * noise)])
    problems = [draw_problem(C, N, length.test_rows, noise, rng) for _ in range(setting.problems)]
    truth, rows = judge(problems, C, noise, length), []
    for M in setting.M:
        sparse = judge(problems, C, noise, length, M) if M < N else None
        for i, problem in enumerate(problems):
            facts = {"C": C, "N": N, "M": M, "noise": noise, "problem": i}
            facts["judge"] = f"{truth.error[i].mean():.2e}"
            for name in METHODS:
                if name not in SLOW or (C <= 3 and M == N):
                    q, cost = fit(name, problem, C, M, noise)
                    rows.append(facts | {"method": name, "kl": f"{divergence(truth, i, q):.3e}"} | cost)
            if sparse is not None:
                kl = divergence(truth, i, sparse.p[i]) - float(sparse.error[i].mean())
                rows.append(facts | {"method": EXACT, "kl": f"{kl:.3e}", "seconds": "", "epochs": ""})
    return rows


# ---------------------------------------------------------------- the page
def read(path: Path = CSV) -> list[dict[str, Any]]:
    """The rows of a CSV."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    kinds = {"C": int, "N": int, "M": int, "problem": int, "noise": float, "judge": float, "kl": float}
    return [row | {name: kind(row[name]) for name, kind in kinds.items()} for row in rows]


def scores(rows: list[dict[str, Any]]) -> dict[tuple[int, int, int, float], dict[str, np.ndarray]]:
    """(C, N, M, noise) → method → KL of every problem."""
    found: dict[tuple[int, int, int, float], dict[str, np.ndarray]] = {}
    key = itemgetter("C", "N", "M", "noise", "method")
    for (*case, method), group in itertools.groupby(sorted(rows, key=key), key):
        found.setdefault(tuple(case), {})[method] = np.array([row["kl"] for row in group])
    return found


def table(rows: list[dict[str, Any]], sparse: bool) -> str:
    """Mean ± standard error over problems, in thousandths of a nat."""
    names, lines = [*METHODS, EXACT] if sparse else list(METHODS), []
    for (C, N, M, noise), found in scores(rows).items():
        if (M < N) == sparse:
            cells = [_cell(found[name]) if name in found else "" for name in names]
            lines.append([str(C), str(N), str(M), f"{noise:g}", *cells])
    used = [i for i in range(4 + len(names)) if any(line[i] for line in lines)]
    head = ["C", "N", "M", "noise", *names]
    return markdown([head[i] for i in used], [[line[i] for i in used] for line in lines])


def _cell(kl: np.ndarray) -> str:
    mean, error = 1e3 * kl.mean(), 1e3 * kl.std(ddof=1) / np.sqrt(len(kl))
    return f"{mean:.0f} ± {error:.0f}" if mean >= 10 else f"{mean + 0.0:.2f} ± {error:.2f}"


def write_page(rows: list[dict[str, Any]]) -> str:
    """The text of docs/accuracy.md."""
    text = Path(__file__).with_name("accuracy.md").read_text(encoding="utf-8")
    problems = len({(row["C"], row["N"], row["noise"], row["problem"]) for row in rows})
    filled = {
        "problems": str(problems),
        "judge": f"{1e3 * np.mean([row['judge'] for row in rows]):.2f}",
        "worst": f"{1e3 * max(row['judge'] for row in rows):.2f}",
        "dense": table(rows, sparse=False),
        "sparse": table(rows, sparse=True),
    }
    for name, value in filled.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def digest(rows: list[dict[str, Any]]) -> str:
    """Digest of what the figure shows."""
    shown = [(row["C"], row["N"], row["M"], row["noise"], row["method"], row["kl"]) for row in rows]
    return "rows-" + hashlib.sha256(repr(sorted(shown)).encode()).hexdigest()[:16]


def draw_figure(rows: list[dict[str, Any]], path: Path) -> None:
    """KL against noise, one panel per number of classes, without sparsity."""
    from matplotlib.figure import Figure

    cases = {(C, N) for C, N, M, _ in scores(rows) if M == N}
    figure = Figure(figsize=(3.2 * len(cases), 3.6), layout="constrained")
    axes = figure.subplots(1, len(cases), sharey=True, squeeze=False)[0]
    for axis, (C, N) in zip(axes, sorted(cases), strict=True):
        for i, name in enumerate(METHODS):
            mean = {k[3]: v[name].mean() for k, v in scores(rows).items() if k[:3] == (C, N, N) and name in v}
            axis.plot(list(mean), np.maximum(list(mean.values()), 1e-5), f"C{i}o-", ms=4, label=name)
        axis.set(xscale="log", yscale="log", xlabel="noise variance", title=f"{C} classes, {N} rows")
    axes[0].set(ylabel="KL from the judge (nats)")
    axes[1].legend(fontsize=7)
    figure.savefig(path, dpi=70, metadata={"Description": digest(rows), "Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=1, help="so many times the problems")
    parser.add_argument("--csv", type=Path, default=CSV)
    parser.add_argument("--page", action="store_true", help="write the page and the figure from the CSV")
    args = parser.parse_args()
    if not args.page:
        torch.set_num_threads(1)
        columns = [
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
        with args.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            for setting, noise in itertools.product(SETTINGS, NOISES):
                grown = setting._replace(problems=args.times * setting.problems)
                writer.writerows(row | {"versions": versions()} for row in measure(grown, noise, Length()))
                file.flush()
                print(f"C={setting.C} N={setting.N} noise={noise}: {time.process_time():.0f} s", flush=True)
    rows = read(args.csv)
    print(table(rows, sparse=False), table(rows, sparse=True), sep="\n\n")
    if args.page:
        PAGE.write_text(write_page(rows), encoding="utf-8")
        draw_figure(rows, FIGURE)


if __name__ == "__main__":
    main()
