"""Figures, drawn from rows.

A figure contains a digest of its rows, so that a test can tell whether it is up to
date.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from cavity.report.colours import COLOURS, GREY
from experiments import draws, regression, sets
from experiments.jobs import Row, key_of
from experiments.methods import title
from experiments.scores import published
from experiments.sets import BOX
from experiments.targets import SCHEDULES, TOY_METHODS, TOY_SIZES, Target
from experiments.toy import GRID, unpack

LINES = dict(
    zip(
        ("ep", "sep", "rep", "vi", "gfitc", "vi_natural", "logistic"),
        COLOURS,
        strict=False,
    )
)
LABELS = {"nll": "test NLL", "error": "test error"}


def digest(rows: Iterable[Row]) -> str:
    """Digest of everything that a figure may show."""
    total = hashlib.sha256()
    for row in sorted(rows, key=lambda r: (key_of(r), r.get("moment") or 0)):
        total.update(
            repr(
                [(k, row[k]) for k in sorted(row) if k not in ("commit", "versions")]
            ).encode()
        )
    return "rows-" + total.hexdigest()[:16]


def draw(target: Target, rows: list[Row], path: Path) -> bool:
    """Draw the figure of a target; return False if it has no rows at its full settings."""
    from matplotlib.figure import Figure

    assert target.figure is not None
    rows = target.select(rows)
    if rows:
        figure = Figure(layout="constrained")
        globals()[target.figure](figure, rows)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(
            path, dpi=90, metadata={"Description": digest(rows), "Software": None}
        )
    return bool(rows)


functions = draws.draw_functions
review = regression.draw_curves

FEW = 5  # lines for which a legend fits inside the axes


def _colour(method: str) -> str:
    name = (
        "vi_natural"
        if method == "vi_long"
        else method.removesuffix("_rate").removesuffix("_long")
    )
    return LINES.get(name, GREY)


def _dash(method: str, many: bool) -> str:
    if method == "sep" and not many:
        return "-."  # EP, below it, is often the same line
    if many and method.endswith("_rate"):
        return ":"
    if method.endswith("_long"):
        return "--"

    return "-"


def _of(rows: list[Row], **wanted: Any) -> list[Row]:
    return [row for row in rows if all(row[k] == v for k, v in wanted.items())]


def _values(rows: Iterable[Row], *names: str) -> list[list[float]]:
    return [[row[name] for row in rows] for name in names]


def schedules(figure: Any, rows: list[Row]) -> None:
    """log Z_q against seconds: one line per run, one colour per schedule."""
    figure.set_size_inches(7, 4.5)
    axis = figure.subplots()
    for colour, schedule in zip(COLOURS, SCHEDULES, strict=False):
        for split in sorted({r["split"] for r in rows}):
            line = _of(rows, method=schedule, split=split)
            axis.plot(
                *_values(line, "seconds", "log_evidence"),
                color=colour,
                label=None if split else schedule,
            )
    best = max(r["log_evidence"] for r in rows)
    axis.set(
        xscale="log",
        xlabel="seconds",
        ylabel="log Z_q",
        title="vehicle, M = N/5, 250 updates",
    )
    axis.set_ylim(best - 0.6 * abs(best), best + 0.02 * abs(best))
    axis.legend(title="schedule")


def toy(figure: Any, rows: list[Row]) -> None:
    """Predicted regions and inducing points: one row of panels per method, one column
    per M.
    """
    data = sets.split("toy", 0)
    methods = [m for m in TOY_METHODS if _of(rows, method=m)]
    figure.set_size_inches(1.75 * len(TOY_SIZES), 1.8 * len(methods) + 0.3)
    panels = np.atleast_2d(
        figure.subplots(
            len(methods), len(TOY_SIZES), sharex=True, sharey=True, squeeze=False
        )
    )
    palette, pale = (
        np.array(["#2f6db3", "#b2365c", "#3a9b6f"]),
        np.array(["#cbdbec", "#eccdd6", "#cee6db"]),
    )
    across = np.linspace(-BOX, BOX, GRID)
    for line, method in zip(panels, methods, strict=True):
        line[0].set_ylabel(title(method))
        for axis, size in zip(line, TOY_SIZES, strict=True):
            axis.set(xticks=[], yticks=[], xlim=(-BOX, BOX), ylim=(-BOX, BOX))
            axis.scatter(
                *data.X.T, c=pale[data.y], s=2, linewidths=0, antialiased=False
            )  # keeps the file small
            for row in _of(rows, method=method, inducing=str(size)):
                regions = unpack(row["regions"], np.uint8, GRID, GRID)
                for k in range(3):
                    if 0 < (regions == k).mean() < 1:
                        axis.contour(
                            across,
                            across,
                            regions == k,
                            levels=[0.5],
                            colors="black",
                            linewidths=0.8,
                        )
                for k, Z in enumerate(unpack(row["points"], np.float32, 3, size, 2)):
                    axis.scatter(
                        *Z.T,
                        s=9,
                        color=palette[k],
                        edgecolors="black",
                        linewidths=0.5,
                        zorder=4,
                    )
    for axis, size in zip(panels[0], TOY_SIZES, strict=True):
        axis.set_title(f"M = {size}")


def satellite_nll(figure: Any, rows: list[Row]) -> None:
    """Figure 4."""
    _satellite(figure, rows, "nll")


def satellite_error(figure: Any, rows: list[Row]) -> None:
    """Figure 6."""
    _satellite(figure, rows, "error")


def _satellite(figure: Any, rows: list[Row], score: str) -> None:
    sizes = {
        d: sorted({int(r["inducing"]) for r in _of(rows, dataset=d)})
        for d in ("satellite", "satellite90")
    }
    sizes = {d: s for d, s in sizes.items() if s}
    figure.set_size_inches(11, 3.4 * len(sizes))
    panels = figure.subplots(len(sizes), max(map(len, sizes.values())), squeeze=False)
    for line, (dataset, column) in zip(panels, sizes.items(), strict=True):
        train = "20 %" if dataset == "satellite" else "90 %"
        for axis, size in zip(line, column, strict=False):
            for method in dict.fromkeys(r["method"] for r in rows):
                some = _of(rows, dataset=dataset, inducing=str(size), method=method)
                if some:
                    axis.plot(
                        *mean_curve(some, score),
                        color=_colour(method),
                        label=title(method),
                    )
            axis.set(
                xscale="log",
                xlabel="seconds",
                ylabel=LABELS[score],
                title=f"{train} training rows, M = {size}",
            )
            axis.legend()


def mean_curve(rows: list[Row], score: str) -> tuple[list[float], list[float]]:
    """Mean seconds and mean score at the moments that all splits share, and at the end."""
    splits = len({r["split"] for r in rows})
    moments = sorted({r["moment"] for r in rows if r["last"] == 0})
    groups = [_of(rows, moment=m, last=0) for m in moments]
    groups = [g for g in groups if len(g) == splits] + [_of(rows, last=1)]
    return [float(np.mean([r["seconds"] for r in g])) for g in groups], [
        float(np.mean([r[score] for r in g])) for g in groups
    ]


def _pair(figure: Any, rows: list[Row], against: str, datasets: list[str]) -> None:
    """NLL and error of every method, one row of panels per data set; logistic
    regression is a horizontal line.
    """
    figure.set_size_inches(10, 3.8 * len(datasets))
    for line, dataset in zip(
        figure.subplots(len(datasets), 2, squeeze=False), datasets, strict=True
    ):
        some = _of(rows, dataset=dataset)
        many = len({r["method"] for r in some}) > FEW
        for axis, score in zip(line, ("nll", "error"), strict=True):
            for method in dict.fromkeys(r["method"] for r in some):
                curve = _of(some, method=method)
                if method == "logistic":
                    axis.axhline(
                        curve[0][score], color="0.5", ls="--", label=title(method)
                    )
                    continue
                axis.plot(
                    *_values(curve, against, score),
                    color=_colour(method),
                    ls=_dash(method, many),
                    label=title(method),
                )
            best = min(r[score] for r in some)
            top = max([r[score] for r in some if r["method"] == "logistic"] or [best])
            axis.set(xscale="log", xlabel=against, ylabel=LABELS[score], title=dataset)
            axis.set_ylim(
                best - 0.01,
                max(3 * best if dataset == "mnist" else best + 0.12, top + 0.02),
            )
            if not many:
                axis.legend()
        if many:
            figure.legend(
                *line[0].get_legend_handles_labels(),
                loc="outside lower center",
                ncols=3,
            )
            figure.set_figheight(figure.get_figheight() + 1)


def mnist(figure: Any, rows: list[Row]) -> None:
    """Figure 5, top, with the published levels of SEP and VI."""
    _pair(figure, rows, "seconds", ["mnist"])
    for axis, score in zip(figure.axes, ("nll", "error"), strict=True):
        for method in ("sep", "vi"):
            level = published(score)["200", "mnist", method].mean
            axis.axhline(level, color=_colour(method), lw=0.8, ls=(0, (1, 3)))


def airline(figure: Any, rows: list[Row]) -> None:
    """Figure 5, bottom."""
    _pair(figure, rows, "seconds", list(dict.fromkeys(r["dataset"] for r in rows)))


def flights(figure: Any, rows: list[Row]) -> None:
    """The figure of the page on scale."""
    _pair(figure, rows, "passes", list(dict.fromkeys(r["dataset"] for r in rows)))


def expected(figure: Any, rows: list[Row]) -> None:
    """Figure 7: what VI maximises (E log p), and what tests measure (log E p)."""
    some = [r for r in rows if r["expected_log_p"] == r["expected_log_p"]]
    datasets = list(dict.fromkeys(r["dataset"] for r in some))
    figure.set_size_inches(5 * max(1, len(datasets)), 4)
    for axis, dataset in zip(
        figure.subplots(1, max(1, len(datasets)), squeeze=False)[0],
        datasets,
        strict=False,
    ):
        line = _of(some, dataset=dataset)
        x, nll, bound = _values(line, "seconds", "nll", "expected_log_p")
        axis.plot(x, [-v for v in nll], color=COLOURS[0], label="log E p")
        axis.plot(x, bound, color=COLOURS[1], label="E log p")
        axis.set(
            xscale="log",
            xlabel="seconds",
            ylabel="mean over test rows",
            title=f"{dataset}, VI",
        )
        axis.legend()
