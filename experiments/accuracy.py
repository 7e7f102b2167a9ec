"""Tables and figure of docs/results/accuracy.md, from the rows of
benchmarks/accuracy.py.
"""

from __future__ import annotations

import csv
import hashlib
import itertools
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from experiments.tables import markdown

METHODS = (
    "EP",
    "SEP",
    "PowerEP",
    "REP(epsilon=0)",
    "GFITC",
    "VI, robust-max",
    "VI, softmax",
    "Laplace",
)
EXACT = "exact on these points"  # a Gibbs run of the sparse (FITC) model
KINDS = {
    "C": int,
    "N": int,
    "M": int,
    "problem": int,
    "noise": float,
    "judge": float,
    "kl": float,
}
Case = tuple[int, int, int, float]  # C, N, M, noise
Row = dict[str, Any]


def read(results: Path) -> list[Row]:
    """The rows in a folder of results."""
    with (results / "accuracy.csv").open(newline="") as file:
        return [
            row | {name: kind(row[name]) for name, kind in KINDS.items()}
            for row in csv.DictReader(file)
        ]


def group_scores(rows: list[Row]) -> dict[Case, dict[str, np.ndarray]]:
    """(C, N, M, noise) → method → KL of every problem."""
    found: dict[Case, dict[str, np.ndarray]] = {}
    key = itemgetter("C", "N", "M", "noise", "method")
    for (*case, method), group in itertools.groupby(sorted(rows, key=key), key):
        C, N, M, noise = case
        found.setdefault((C, N, M, noise), {})[method] = np.array(
            [row["kl"] for row in group]
        )
    return found


def table(rows: list[Row], sparse: bool) -> str:
    """Mean ± standard error over problems, in thousandths of a nat."""
    names = [*METHODS, EXACT]
    lines = []
    for (C, N, M, noise), found in group_scores(rows).items():
        if (M < N) == sparse:
            cells = [_cell(found[name]) if name in found else "" for name in names]
            lines.append([str(C), str(N), str(M), f"{noise:g}", *cells])
    head = ["C", "N", "M", "noise", *names]
    used = [i for i in range(len(head)) if any(line[i] for line in lines)]
    return markdown(
        [head[i] for i in used], [[line[i] for i in used] for line in lines]
    )


def _cell(kl: np.ndarray) -> str:
    mean = 1e3 * kl.mean()
    error = 1e3 * kl.std(ddof=1) / np.sqrt(len(kl))
    digits = int(mean < 10) + int(mean < 100)
    # + 0.0: no minus zero
    return f"{round(mean, digits) + 0.0:.{digits}f} ± {error:.{digits}f}"


def facts(rows: list[Row]) -> str:
    """How many problems, and how precise the judge is."""
    problems = {
        (row["C"], row["N"], row["noise"], row["problem"]): row["judge"] for row in rows
    }
    error = 1e3 * np.array(list(problems.values()))
    return (
        f"{len(problems)} problems. The judge's own Monte Carlo error adds "
        f"{error.mean():.2f} thousandths of a nat to a KL on "
        f"average ({error.max():.2f} at most, with many classes and little noise); "
        f"this is subtracted."
    )


def digest(rows: list[Row]) -> str:
    """Digest of what the figure shows."""
    shown = sorted(
        tuple(row[name] for name in ("C", "N", "M", "noise", "method", "kl"))
        for row in rows
    )
    return "rows-" + hashlib.sha256(repr(shown).encode()).hexdigest()[:16]


def draw(rows: list[Row], path: Path) -> None:
    """KL against noise, one panel per size, without sparsity."""
    from matplotlib.figure import Figure

    scores = group_scores(rows)
    cases = sorted({(C, N) for C, N, M, _ in scores if M == N})
    figure = Figure(figsize=(2.8 * len(cases), 3.6), layout="constrained")
    axes = figure.subplots(1, len(cases), sharey=True, squeeze=False)[0]
    for axis, (C, N) in zip(axes, cases, strict=True):
        for i, name in enumerate(METHODS):
            mean = {
                k[3]: v[name].mean()
                for k, v in scores.items()
                if k[:3] == (C, N, N) and name in v
            }
            axis.plot(
                list(mean),
                np.maximum(list(mean.values()), 1e-5),
                f"C{i}o{'--' if name == 'GFITC' else '-'}",
                ms=4,
                label=name,
            )
        axis.set(
            xscale="log",
            yscale="log",
            xlabel="noise variance",
            title=f"{C} classes, {N} rows",
        )
    axes[0].set(ylabel="KL from the judge (nats)")
    figure.legend(
        *axes[1].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=len(METHODS),
        fontsize=8,
    )
    figure.savefig(
        path, dpi=70, metadata={"Description": digest(rows), "Software": None}
    )
