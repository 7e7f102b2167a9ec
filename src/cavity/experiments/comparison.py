"""docs/comparison.md: scores, ranks, times, from the rows of `compare`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from cavity.experiments.compare import OURS, SETS, SPLITS, USUAL_SPLITS, jobs
from cavity.experiments.methods import title
from cavity.experiments.peers import PEERS
from cavity.experiments.rows import Row, key_of
from cavity.experiments.tables import markdown
from cavity.experiments.texts import paragraphs
from cavity.experiments.verdicts import Cell, cell
from cavity.report.plots import COLOURS

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
TITLE = "# Beside other libraries"
SCORES = (
    ("nll", "NLL", 3),
    ("error", "error", 3),
    ("ece", "calibration error", 3),
    ("brier", "Brier score", 3),
)
COSTS = (
    ("seconds", "seconds to fit", "{:.3g}"),
    ("predict_rows_per_second", "rows predicted a second", "{:,.0f}"),
    ("peak_mb", "memory that the fit adds, MB", "{:,.0f}"),
    ("model_kb", "size of the model, kB", "{:,.0f}"),
)


def methods(rows: Iterable[Row]) -> list[str]:
    """Those that have rows, ours first."""
    present = {row["method"] for row in rows}
    return [m for m in (*OURS, *PEERS) if m in present]


def means(rows: list[Row], score: str) -> dict[tuple[str, str], Cell]:
    """(data set, method) → mean over splits."""
    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if not math.isnan(row[score]):
            groups.setdefault((row["dataset"], row["method"]), []).append(row[score])
    return {key: cell(values) for key, values in groups.items()}


def paired(rows: list[Row], among: tuple[str, ...]) -> list[Row]:
    """Of these methods, on each set, the splits that all of them have that have any there: no one is judged by easier rows."""
    splits: dict[str, dict[str, set[int]]] = {}
    for row in rows:
        if row["method"] in among:
            splits.setdefault(row["dataset"], {}).setdefault(row["method"], set()).add(row["split"])
    common = {dataset: set.intersection(*have.values()) for dataset, have in splits.items()}
    return [r for r in rows if r["method"] in among and r["split"] in common[r["dataset"]]]


def mean_ranks(rows: list[Row], among: tuple[str, ...], score: str = "nll") -> dict[str, tuple[float, int]]:
    """Method → mean rank over the sets where it ran beside another, and how many; equal means share their ranks."""
    table = means(paired(rows, among), score)
    places: dict[str, list[float]] = {}
    for dataset in SETS:
        here = {m: table[dataset, m].mean for m in among if (dataset, m) in table}
        if len(here) == 1:
            continue
        for method, value in here.items():
            less, same = sum(v < value for v in here.values()), sum(v == value for v in here.values())
            places.setdefault(method, []).append(less + (same + 1) / 2)
    return {m: (float(np.mean(p)), len(p)) for m, p in places.items()}


def ranks(rows: list[Row]) -> str:
    """Mean rank of `auto` among the peers, best first."""
    if not rows:
        return "No rows yet: `cavity compare`."
    among = ("auto", *PEERS)
    columns = {score: mean_ranks(rows, among, score) for score, _, _ in SCORES}
    order = sorted(columns["nll"], key=lambda m: columns["nll"][m][0])
    lines = [
        [NAMES[m], *(f"{columns[s][m][0]:.2f}" for s, _, _ in SCORES), str(columns["nll"][m][1])]
        for m in order
    ]
    table = markdown(["method", *(name for _, name, _ in SCORES), "sets"], lines)
    return f"{table}\n\n{_done(rows)}"


def _done(rows: list[Row]) -> str:
    """How many of the fits are there, and whose are not."""
    found, all_jobs = {key_of(row) for row in rows}, jobs()
    left = [job.method for job in all_jobs if job.key not in found]
    if not left:
        return f"All of {len(all_jobs)} fits."
    names = ", ".join(NAMES[m] for m in dict.fromkeys(left))
    return f"{len(all_jobs) - len(left)} of {len(all_jobs)} fits; those left are of {names}."


def level_times(rows: list[Row]) -> list[tuple[str, float, float, float]]:
    """(data set, GPyTorch's final NLL, its seconds, ours to the same NLL): medians over splits, ∞ if never reached."""
    found = []
    for dataset in SETS:
        each = {
            m: {r["split"]: r for r in rows if r["dataset"] == dataset and r["method"] == m}
            for m in ("auto", "gpytorch")
        }
        both = [(each["auto"][s], peer) for s, peer in each["gpytorch"].items() if s in each["auto"]]
        if both:
            reached = [_reaches(json.loads(a["curve"] or "[]"), g["nll"]) for a, g in both]
            level, theirs = np.median([g["nll"] for _, g in both]), np.median([g["seconds"] for _, g in both])
            found.append((dataset, float(level), float(theirs), float(np.median(reached))))
    return found


def _reaches(curve: list[list[float]], level: float) -> float:
    return next((seconds for seconds, nll in curve if nll <= level), math.inf)


def _levels(rows: list[Row]) -> str:
    lines, faster = [], 0
    for dataset, level, theirs, ours in level_times(rows):
        faster += theirs >= 10 * ours
        told = ["not reached", "–"] if math.isinf(ours) else [f"{ours:.2f}", f"{theirs / ours:.1f}"]
        lines.append([dataset, f"{level:.4f}", f"{theirs:.2f}", *told])
    head = ["data set", "GPyTorch's test NLL", "its seconds", "cavity's seconds to that NLL", "times faster"]
    return (
        markdown(head, lines)
        + f"\n\nAt least ten times faster on {faster} of {len(lines)} sets (medians over splits)."
    )


def winners(rows: list[Row]) -> str:
    """On each set the lowest NLL, and by how much `auto` misses it."""
    among = ("auto", *PEERS)
    table = means(paired(rows, among), "nll")
    lines = []
    for dataset in SETS:
        here = {m: table[dataset, m] for m in among if (dataset, m) in table}
        if "auto" in here and len(here) > 1:
            best = min(here, key=lambda m: here[m].mean)
            gap = here["auto"].mean - here[best].mean
            lines.append(
                [
                    dataset,
                    str(here[best].n),
                    NAMES[best],
                    here[best].text(),
                    "" if best == "auto" else f"{gap:+.3f}",
                ]
            )
    return markdown(["data set", "splits", "lowest NLL", "", "auto above it"], lines)


def _scores(rows: list[Row], score: str, digits: int) -> str:
    table, names = means(rows, score), methods(rows)
    lines = []
    for dataset in SETS:
        here = {m: table[dataset, m] for m in names if (dataset, m) in table}
        if here:
            best = min(c.mean for c in here.values())
            wanted = SPLITS.get(dataset, USUAL_SPLITS)
            cells = [_bold(here[m], digits, best, wanted) if m in here else "–" for m in names]
            lines.append([dataset, *cells])
    return markdown(["data set", *(NAMES[m] for m in names)], lines)


def _bold(value: Cell, digits: int, best: float, wanted: int) -> str:
    text = f"**{value.text(digits)}**" if value.mean == best else value.text(digits)
    return text if value.n >= wanted else f"{text} [{value.n}]"


def _costs(rows: list[Row], score: str, form: str) -> str:
    table, names = means(rows, score), methods(rows)
    lines = [
        [d, *(form.format(table[d, m].mean) if (d, m) in table else "–" for m in names)]
        for d in SETS
        if any((d, m) in table for m in names)
    ]
    return markdown(["data set", *(NAMES[m] for m in names)], lines)


def page(rows: list[Row]) -> str:
    """The whole page."""
    if not rows:
        return f"{TITLE}\n\n{paragraphs()['comparison-head']}\n\nNot run yet: `cavity compare`.\n"
    parts = [
        TITLE,
        paragraphs()["comparison-head"],
        "[n]: fewer splits than that.",
        "## Ranks\n\nMean rank over the sets on which a method ran, `auto` among the peers, on the splits that all of them "
        "have; 1 is best.\n\n" + ranks(rows),
        winners(rows),
        *(
            f"## {name[0].upper() + name[1:]}\n\n{_scores(rows, score, digits)}"
            for score, name, digits in SCORES
        ),
        "## Time to GPyTorch's level\n\nWhen `auto` first has the NLL that SVGP ends with, on the test rows.\n\n"
        + _levels(rows)
        + f"\n\n{paragraphs()['comparison-times']}",
        "![NLL against seconds](figures/compare.png)",
        *(f"## {name[0].upper() + name[1:]}\n\n{_costs(rows, score, form)}" for score, name, form in COSTS),
    ]
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    return "\n\n".join([*parts, f"Rows of commits {commits}."]) + "\n"


def draw_pareto(figure: Any, rows: list[Row]) -> None:
    """NLL against seconds, a panel a set, of methods with all its splits; the line joins what nothing else beats in both."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    nll, time = means(rows, "nll"), means(rows, "seconds")
    nll = {(d, m): value for (d, m), value in nll.items() if value.n == SPLITS.get(d, USUAL_SPLITS)}
    shown = [d for d in SETS if any(key[0] == d for key in nll)]
    names = [m for m in methods(rows) if any(key[1] == m for key in nll)]
    palette = dict(zip((*OURS, *PEERS), (*COLOURS, "black", "#f26b6b"), strict=False))
    across = min(5, len(shown))
    down = -(-len(shown) // across)
    figure.set_size_inches(3.2 * across + 1.5, 3.0 * down)
    panels = np.atleast_1d(figure.subplots(down, across, squeeze=False)).ravel()
    for axis in panels[len(shown) :]:
        axis.axis("off")
    for axis, dataset in zip(panels, shown, strict=False):
        points = {m: (time[dataset, m].mean, nll[dataset, m].mean) for m in names if (dataset, m) in nll}
        for method, (x, y) in points.items():
            marker = "o" if method in OURS else "s"
            axis.scatter(
                x, y, color=palette[method], marker=marker, label=NAMES.get(method, title(method)), zorder=3
            )
        front = [
            p
            for p in points.values()
            if not any(q[0] <= p[0] and q[1] <= p[1] and q != p for q in points.values())
        ]
        axis.plot(*zip(*sorted(front), strict=True), color="0.6", lw=1, zorder=1)
        axis.set(xscale="log", xlabel="seconds", ylabel="test NLL", title=dataset)
        low, high = axis.get_xlim()
        axis.xaxis.set_major_locator(LogLocator(subs=(1.0,) if high > 30 * low else (1.0, 2.0, 5.0)))
        axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.xaxis.set_minor_formatter(NullFormatter())
    handles = {
        t.get_label(): t
        for axis in panels
        for t in axis.collections
        if not str(t.get_label()).startswith("_")
    }
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", fontsize=8)
