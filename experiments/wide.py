"""The comparison on twenty-five sets: NLL, ranks, and the sets on which another library is better."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import rankdata, studentized_range

from experiments.jobs import Row
from experiments.methods import PEERS
from experiments.scores import Cell, mean_cell
from experiments.tables import bold_lowest, markdown
from experiments.targets import WIDE_OURS, WIDE_SETS, WIDE_SPLITS

NAMES = {
    "fast": 'cavity, `effort="fast"`',
    "balanced": "cavity, default",
    "best": 'cavity, `effort="best"`',
    "gpflow": "GPflow SVGP",
    "logistic": "logistic regression",
    "lightgbm": "LightGBM",
    "hist_boosting": "HistGradientBoosting",
    "lightgbm_tuned": "LightGBM, tuned",
    "catboost": "CatBoost",
    "realmlp": "RealMLP",
}
SHORT = 8  # methods in the README
CLOSE = 1.05  # times the best peer
Table = dict[tuple[str, str], Cell]


def name(method: str) -> str:
    """Name of a method in this section."""
    return NAMES[method]


def means(rows: list[Row], score: str) -> dict[tuple[str, str], Cell]:
    """(data set, method) → mean over splits."""
    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if not math.isnan(row[score]):
            groups.setdefault((row["dataset"], row["method"]), []).append(row[score])
    return {key: mean_cell(values) for key, values in groups.items()}


def complete_methods(rows: list[Row]) -> list[str]:
    """Return the methods that have every set and split, ours first."""
    done = {m: {(r["dataset"], r["split"]) for r in rows if r["method"] == m} for m in (*WIDE_OURS, *PEERS)}
    return [m for m, found in done.items() if len(found) == len(WIDE_SETS) * WIDE_SPLITS]


def mean_ranks(table: Table, methods: list[str]) -> dict[str, float]:
    """Return the mean rank of each method over the sets."""
    ranks = rankdata([[table[d, m].mean for m in methods] for d in WIDE_SETS], axis=1)
    return dict(zip(methods, ranks.mean(0).tolist(), strict=True))


def critical_difference(n_methods: int, n_sets: int, level: float = 0.05) -> float:
    r"""Nemenyi's test: mean ranks that differ by less are not told apart.

    CD = q_α √(k (k + 1) / (6 N)),   q_α: quantile of the studentized range of k means, divided by √2
    """
    quantile = studentized_range.ppf(1 - level, n_methods, np.inf) / np.sqrt(2)
    return float(quantile * np.sqrt(n_methods * (n_methods + 1) / (6 * n_sets)))


def write_section(rows: list[Row], text: str) -> str:
    """Return the section; an empty string without rows."""
    methods = complete_methods(rows)
    if not methods:
        return ""
    table = means(rows, "nll")
    ranks = mean_ranks(table, methods)
    parts = ["## More sets, more peers", text, _rank_table(rows, methods), _noise_sentence(ranks)]
    if "best" in methods:
        parts.append(_sentences(table, methods))
    return "\n\n".join([*parts, _nll_table(table, methods)])


def short_ranks(rows: list[Row]) -> str:
    """Return the mean ranks by NLL of the first methods, their seconds and their uncertainty, for the README."""
    methods = complete_methods(rows)
    ranks, errors = (mean_ranks(means(rows, score), methods) for score in ("nll", "ece"))
    order = sorted(methods, key=lambda m: ranks[m])[:SHORT]
    lines = [[name(m), f"{ranks[m]:.2f}", f"{errors[m]:.2f}", _median_seconds(rows, m)] for m in order]
    head = [f"method, of {len(methods)}", "rank by NLL", "by calibration error", "median seconds of a fit"]
    return f"{markdown(head, lines)}\n\n{_noise_sentence(ranks)}"


def _noise_sentence(ranks: dict[str, float]) -> str:
    """Say which differences of mean rank are larger than chance makes them."""
    least = critical_difference(len(ranks), len(WIDE_SETS))
    order = sorted(ranks, key=lambda m: ranks[m])
    said = []
    for ours in (m for m in order if m in WIDE_OURS):
        behind = [m for m in order if ranks[m] - ranks[ours] > least]
        if behind:
            count = f"{len(behind)} of the other {len(ranks) - 1} ({name(behind[0])} and those below it)"
            said.append(f"{name(ours)} is better than {count}")
        else:
            said.append(f"{name(ours)} is not told apart from any")
    return (
        f"Differences of mean rank below {least:.2f} are noise (Nemenyi's critical difference for {len(ranks)} methods on "
        f"{len(WIDE_SETS)} sets, at 5 %). By NLL, {'; '.join(said)}."
    )


def _median_seconds(rows: list[Row], method: str) -> str:
    return f"{np.median([r['seconds'] for r in rows if r['method'] == method]):.1f}"


def _rank_table(rows: list[Row], methods: list[str]) -> str:
    nll, error, ece = (mean_ranks(means(rows, score), methods) for score in ("nll", "error", "ece"))
    lines = [
        [name(m), f"{nll[m]:.2f}", f"{error[m]:.2f}", f"{ece[m]:.2f}", _median_seconds(rows, m)]
        for m in sorted(methods, key=lambda m: nll[m])
    ]
    return markdown(["method", "rank by NLL", "by error", "by calibration error", "median seconds"], lines)


def _sentences(table: Table, methods: list[str]) -> str:
    """Say on how many sets ours is as good as the peers, and where it is not."""
    peers = [m for m in methods if m not in WIDE_OURS]
    best = {d: min(peers, key=lambda m: table[d, m].mean) for d in WIDE_SETS}
    ratio = {d: table[d, "best"].mean / max(table[d, best[d]].mean, 1e-12) for d in WIDE_SETS}
    behind = sorted(
        (d for d in WIDE_SETS if ratio[d] > CLOSE),
        key=lambda d: -table[d, "best"].mean + table[d, best[d]].mean,
    )
    lines = [
        f'`effort="best"` is at most {100 * (CLOSE - 1):.0f} % above the best of {len(peers)} peers on '
        f"{len(WIDE_SETS) - len(behind)} of {len(WIDE_SETS)} sets, and below it on "
        f"{sum(r <= 1 for r in ratio.values())}."
    ]
    if behind:
        lost = (
            f"{d} ({table[d, 'best'].mean:.3f}, {name(best[d])} {table[d, best[d]].mean:.3f})" for d in behind
        )
        lines.append(f"It is behind on {', '.join(lost)}.")
    return " ".join(lines)


def _nll_table(table: Table, methods: list[str]) -> str:
    lines = ([d, *bold_lowest({m: table[d, m].mean for m in methods}, methods)] for d in WIDE_SETS)
    return f"### NLL\n\n{markdown(['data set', *map(name, methods)], lines)}"
