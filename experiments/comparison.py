"""docs/results/comparison.md: scores, ranks and times from the rows of `compare`, and tables of the GPU benchmark."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from experiments.jobs import Row
from experiments.methods import PEERS
from experiments.scores import Cell, mean_cell
from experiments.tables import markdown
from experiments.targets import COMPARED_SETS, COMPARED_SPLITS, OURS

NAMES = {
    "auto": "cavity (auto)",
    "ep": "cavity EP",
    "sep": "cavity SEP",
    "rep": "cavity REP",
    "vi_natural": "cavity VI",
    "gfitc": "cavity GFITC",
    "sklearn_gp": "scikit-learn GP",
    "gpytorch": "GPyTorch SVGP",
    "gpflow": "GPflow SVGP",
    "logistic": "logistic regression",
    "lightgbm": "LightGBM",
    "hist_boosting": "HistGradientBoosting",
}
RANKED = ("auto", *PEERS)
SCORES = {"nll": "NLL", "error": "error", "ece": "calibration error", "brier": "Brier score"}
GPU_LEVELS = (0.104, 0.08, 0.0725, 0.069)  # test NLL on MNIST
GPU_NAMES = {"ep": "EP", "sep": "SEP"}


def present_methods(rows: Iterable[Row]) -> list[str]:
    """Methods that have rows, ours first."""
    present = {row["method"] for row in rows}
    return [m for m in (*OURS, *PEERS) if m in present]


def means(rows: list[Row], score: str) -> dict[tuple[str, str], Cell]:
    """(data set, method) → mean over splits."""
    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if not math.isnan(row[score]):
            groups.setdefault((row["dataset"], row["method"]), []).append(row[score])
    return {key: mean_cell(values) for key, values in groups.items()}


def keep_shared_splits(rows: list[Row], methods: tuple[str, ...]) -> list[Row]:
    """Rows of these methods; on each set only the splits shared by all methods that ran there."""
    splits: dict[str, dict[str, set[int]]] = {}
    for row in rows:
        if row["method"] in methods:
            splits.setdefault(row["dataset"], {}).setdefault(row["method"], set()).add(row["split"])
    common = {dataset: set.intersection(*have.values()) for dataset, have in splits.items()}
    return [r for r in rows if r["method"] in methods and r["split"] in common[r["dataset"]]]


def mean_ranks(rows: list[Row], methods: tuple[str, ...], score: str = "nll") -> dict[str, tuple[float, int]]:
    """Method → (mean rank, number of sets), over sets on which at least two methods ran. Ties share their ranks."""
    table = means(keep_shared_splits(rows, methods), score)
    places: dict[str, list[float]] = {}
    for dataset in COMPARED_SETS:
        here = {m: table[dataset, m].mean for m in methods if (dataset, m) in table}
        if len(here) == 1:
            continue
        for method, value in here.items():
            less, same = sum(v < value for v in here.values()), sum(v == value for v in here.values())
            places.setdefault(method, []).append(less + (same + 1) / 2)
    return {m: (float(np.mean(p)), len(p)) for m, p in places.items()}


def rank_table(rows: list[Row]) -> str:
    """Mean ranks of `auto` and the peers, best first."""
    if not rows:
        return "No rows yet: `python -m experiments compare`."
    columns = {score: mean_ranks(rows, RANKED, score) for score in SCORES}
    order = sorted(columns["nll"], key=lambda m: columns["nll"][m][0])
    lines = [
        [NAMES[m], *(f"{columns[score][m][0]:.2f}" for score in SCORES), str(columns["nll"][m][1])]
        for m in order
    ]
    return markdown(["method", *SCORES.values(), "sets"], lines)


def _score_table(rows: list[Row], score: str) -> str:
    table, names = means(rows, score), present_methods(rows)
    lines = []
    for dataset in COMPARED_SETS:
        here = {m: table[dataset, m] for m in names if (dataset, m) in table}
        if here:
            best = min(c.mean for c in here.values())
            cells = [_bold(here[m], best, COMPARED_SPLITS[dataset]) if m in here else "–" for m in names]
            lines.append([dataset, *cells])
    return markdown(["data set", *(NAMES[m] for m in names)], lines)


def _bold(value: Cell, best: float, n_splits: int) -> str:
    text = f"**{value.text()}**" if value.mean == best else value.text()
    return text if value.n >= n_splits else f"{text} [{value.n}]"


def _seconds_table(rows: list[Row]) -> str:
    table, names = means(rows, "seconds"), present_methods(rows)
    lines = [
        [d, *(f"{table[d, m].mean:.3g}" if (d, m) in table else "–" for m in names)]
        for d in COMPARED_SETS
        if any((d, m) in table for m in names)
    ]
    return markdown(["data set", *(NAMES[m] for m in names)], lines)


def write_page(rows: list[Row], texts: dict[str, str], further: str = "") -> str:
    """The whole page; `further`: sections with rows of other targets."""
    title = "# Comparison with other libraries"
    if not rows:
        return f"{title}\n\n{texts['comparison']}\n\nNo rows yet: `python -m experiments compare`.\n"
    parts = [
        title,
        texts["comparison"],
        *([further] if further else []),
        f"## Ranks\n\n{texts['comparison-ranks']}\n\n{rank_table(rows)}",
        f"## Setup\n\n{texts['comparison-setup']}",
        *(
            f"## {name[0].upper() + name[1:]}\n\n{_score_table(rows, score)}"
            for score, name in SCORES.items()
        ),
        f"## Seconds to fit\n\n{texts['comparison-seconds']}\n\n{_seconds_table(rows)}",
    ]
    return "\n\n".join(parts) + "\n"


# ---------------------------------------------------------------- the GPU benchmark (benchmarks/gpu.py)
def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a file; an empty list if it does not exist."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _gpu_runs(results: Path, *columns: str) -> dict[tuple[str, ...], list[dict[str, str]]]:
    runs: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in read_csv(results / "gpu.csv"):
        runs.setdefault(tuple(row[name] for name in columns), []).append(row)
    return runs


def gpu_table(results: Path) -> str:
    """Seconds to levels of test NLL on MNIST, one line per run."""
    lines = []
    for (method, M, batch, dtype), rows in _gpu_runs(results, "method", "M", "batch", "dtype").items():
        last = rows[-1]
        lines.append(
            [
                GPU_NAMES.get(method) or method.replace("gpytorch", "GPyTorch's SVGP, rate"),
                M,
                batch,
                dtype,
                *(_reached(rows, level) for level in GPU_LEVELS),
                f"{float(last['nll']):.4f}, {100 * float(last['error']):.2f} %",
                f"{float(last['seconds']):.0f}",
            ]
        )
    levels = [f"to {level}" for level in GPU_LEVELS]
    return markdown(["", "M", "batch", "precision", *levels, "at the end", "seconds"], lines)


def gpu_step_table(results: Path) -> str:
    """Milliseconds per step."""
    head = ["M", "batch", "precision", "EP", "SEP", "EP, not recorded", "SEP, not recorded", "GPyTorch"]
    columns = ("ep_ms", "sep_ms", "ep_eager_ms", "sep_eager_ms", "gpytorch_ms")
    return markdown(
        head,
        (
            [row["M"], row["batch"], row["dtype"], *(f"{float(row[name]):.1f}" for name in columns)]
            for row in read_csv(results / "gpu_steps.csv")
        ),
    )


def gpu_device_table(results: Path) -> str:
    """Seconds of fits of small tables on the CPU and on the GPU."""
    head = ["data set", "rows", "classes", "`effort`", "CPU, s", "GPU, s"]
    return markdown(
        head,
        (
            [*(row[name] for name in ("set", "rows", "classes", "effort")), *seconds]
            for row in read_csv(results / "gpu_devices.csv")
            if (seconds := [f"{float(row[name]):.2f}" for name in ("cpu", "cuda")])
        ),
    )


def _reached(rows: list[dict[str, str]], level: float) -> str:
    seconds = _gpu_seconds(rows, level)
    return "–" if math.isinf(seconds) else f"{seconds:.1f}"


def _gpu_seconds(rows: list[dict[str, str]], level: float) -> float:
    return min((float(row["seconds"]) for row in rows if float(row["nll"]) <= level), default=math.inf)
