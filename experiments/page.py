"""Documents made from rows: docs/results/reproduction.md, docs/results/comparison.md,
and marked tables in other documents.

A marked table stands between `<!-- rows: NAME -->` and `<!-- end of rows -->`; NAME is
a key of BLOCKS.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from experiments import (
    accuracy,
    calibration,
    draws,
    figures,
    law,
    performance,
    references,
    regression,
    row_curve,
    scale,
    table_text,
    tables,
    toy,
)
from experiments.jobs import ROOT, Row, describe_version
from experiments.methods import title
from experiments.scores import mean_cells
from experiments.targets import PAPER, SHARES, TARGETS, TOY_METHODS, Target

REPRODUCTION, COMPARISON = (
    Path(f"docs/results/{name}.md") for name in ("reproduction", "comparison")
)
FIGURES = Path("docs/figures")
BLOCK = re.compile(r"(<!-- rows: ([\w-]+) -->\n).*?(<!-- end of rows -->)", re.DOTALL)


class Rows:
    """The result files of a folder; each is read once."""

    def __init__(self, results: Path) -> None:
        self.folder = results
        self.read = cache(lambda name: TARGETS[name].result_file(results).read())

    def select(self, name: str) -> list[Row]:
        """Rows at the full settings of a target."""
        return TARGETS[name].select(self.read(name))


@cache
def read_texts() -> dict[str, str]:
    """The hand-written text of the pages, by section."""
    text = Path(__file__).with_name("texts.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (\S+)\n", text, flags=re.MULTILINE)
    return {
        name: part.strip() for name, part in zip(parts[1::2], parts[2::2], strict=True)
    }


# ---------------------------------------------------------------- docs/results/reproduction.md
def write_reproduction(rows: Rows) -> str:
    """The whole page."""
    names = [
        *(name for name in PAPER if name not in JOINED),
        "mnist-variants",
        "mnist-best",
    ]
    sections = [write_section(TARGETS[name], rows) for name in names]
    return (
        "\n\n".join(
            ["# Reproduction of the papers", read_texts()["reproduction"], *sections]
        )
        + "\n"
    )


def write_section(target: Target, rows: Rows) -> str:
    """One target: its state, its table, its figure, and why it differs from the papers."""
    found = rows.select(target.name)
    both = [
        target,
        *(TARGETS[name] for name, first in JOINED.items() if first == target.name),
    ]
    parts = ["## " + "; ".join(t.title for t in both), _state(target, found)]
    if found:
        parts += BODIES[target.name](found)
        parts += [f"![{t.title}](../figures/{t.name}.png)" for t in both if t.figure]
        parts.append(read_texts().get(target.name, ""))
    if target.name == "table2":
        parts += [_new_thyroid(rows.select("new_thyroid")), _shipped(rows)]
    return "\n\n".join(part for part in parts if part)


def _state(target: Target, found: list[Row]) -> str:
    done = len({(r["settings"], r["split"]) for r in found})
    total = len(target.jobs())
    count = f"{done} of {total}" if done < total else f"all {total}"
    origins = sorted({describe_version(row) for row in found if row["versions"]})
    by = f" Computed by {', '.join(origins)}." if origins else ""
    return f"`python -m experiments {target.name}`: {count} fits.{by}"


def _table2(rows: list[Row]) -> list[str]:
    return [
        tables.counts(rows),
        *_per_share(rows, "nll"),
        "### Seconds\n\n" + read_texts()["seconds"],
        tables.seconds(rows),
        "### Differences",
    ]


def _per_share(rows: list[Row], score: str) -> list[str]:
    shares = [s for s in SHARES if any(r["inducing"] == s for r in rows)]
    return [f"### M = {s}\n\n{tables.paper_table(rows, s, score)}" for s in shares]


def _shipped(rows: Rows) -> str:
    """Both efforts, and the default of version 0.1."""
    older = [row for row in rows.select("table2") if row["method"] == "auto"]
    table = tables.shipped(older + rows.select("table2-efforts"))
    return f"### As shipped\n\n{read_texts()['shipped']}\n\n{table}"


def _new_thyroid(rows: list[Row]) -> str:
    """How much the choice of 20 splits matters."""
    if not rows:
        return ""
    few = mean_cells([r for r in rows if r["split"] < 20], "nll")
    many = mean_cells(rows, "nll")
    lines = [[title(p[2]), few[p].text(), many[p].text()] for p in sorted(many)]
    n = max(cell.n for cell in many.values())
    head = ["new_thyroid, M = 10%", "20 splits", f"{n} splits"]
    return f"{read_texts()['new_thyroid']}\n\n{tables.markdown(head, lines)}"


def _fig1(rows: list[Row]) -> list[str]:
    ends = [r for r in rows if r["last"] == 1]
    value = mean_cells(ends, "log_evidence")
    time = mean_cells(ends, "seconds")
    lines = [
        [p[2], value[p].text(1), f"{time[p].mean:.1f}", str(value[p].n)] for p in value
    ]
    return [
        tables.markdown(
            ["schedule", "log Z_q after 250 updates", "seconds", "splits"], lines
        )
    ]


def _fig3(rows: list[Row]) -> list[str]:
    lines = []
    for size in toy.TABLE_SIZES:
        overlap, distance = toy.measure_start(size)
        lines.append(
            [
                f"M = {size}, start",
                f"{100 * overlap:.0f} %",
                f"{distance:.2f}",
                "0 %",
                "",
            ]
        )
        for method in TOY_METHODS:
            for row in [
                r for r in rows if r["method"] == method and r["inducing"] == str(size)
            ]:
                overlap, distance, outside = toy.measure_points(row)
                score = f"{row['nll']:.3f}, {row['error']:.3f}"
                shares = (
                    f"{100 * overlap:.0f} %",
                    f"{distance:.2f}",
                    f"{100 * outside:.0f} %",
                )
                lines.append([title(method), *shares, score])
    head = [
        "",
        "points within 0.1 of another",
        "median distance to the boundary",
        "outside the box",
    ]
    return [tables.markdown([*head, "test NLL, error"], lines)]


def _satellite(rows: list[Row]) -> list[str]:
    ends = [r for r in rows if r["last"] == 1]
    nll, error, time = (
        mean_cells(ends, score) for score in ("nll", "error", "seconds")
    )
    order = sorted(nll, key=lambda p: (p[1], int(p[0]), p[2]))
    lines = [
        [
            p[1],
            p[0],
            title(p[2]),
            nll[p].text(4),
            error[p].text(4),
            f"{time[p].mean:.1f}",
        ]
        for p in order
    ]
    return [
        tables.markdown(
            ["rows", "M", "method", "test NLL", "test error", "seconds"], lines
        )
    ]


def _fig7(rows: list[Row]) -> list[str]:
    lines = []
    for dataset in dict.fromkeys(r["dataset"] for r in rows):
        curve = [
            r
            for r in rows
            if r["dataset"] == dataset and r["expected_log_p"] == r["expected_log_p"]
        ]
        if curve:
            shown = (curve[0], min(curve, key=lambda r: r["nll"]), curve[-1])
            cells = [
                f"{-r['nll']:.3f}, {r['expected_log_p']:.3f} ({r['passes']:.3f})"
                for r in shown
            ]
            lines.append([dataset, *cells])
    head = ["flights", "first: log E p, E log p (passes)", "highest log E p", "last"]
    return [tables.markdown(head, lines)] if lines else []


def _draws(rows: list[Row]) -> list[str]:
    lines = []
    for method in draws.PROCESSES:
        x, f, mean, sd = draws.read_draws(rows, method)
        inside = np.abs(f - mean[:, None]) <= 2 * sd[:, None] + draws.ROUNDING
        lines.append([method, str(f.shape[1]), str(len(x)), f"{inside.mean():.1%}"])
    head = ["draws of the", "draws", "places", "within two standard deviations"]
    return [tables.markdown(head, lines)]


def _review(rows: list[Row]) -> list[str]:
    head, *lines = regression.end_cells(rows)
    return [tables.markdown(head, lines)]


JOINED = {"fig6": "fig4"}  # shown in one section: the same fits
BODIES: dict[str, Callable[[list[Row]], list[str]]] = {
    "table2": _table2,
    "table3": lambda rows: _per_share(rows, "error"),
    "fig1": _fig1,
    "fig3": _fig3,
    "fig4": _satellite,
    "fig5-mnist": lambda rows: [tables.mnist(rows)],
    "fig5-airline": lambda rows: [tables.curves(rows, "seconds")],
    "fig7": _fig7,
    "draws": _draws,
    "review-svi": _review,
    "review-collapsed": _review,
    "review-big": _review,
    "review-newton": _review,
    "mnist-variants": lambda rows: [tables.mnist(rows)],
    "mnist-best": lambda rows: [tables.mnist(rows)],
}

# ---------------------------------------------------------------- all documents
BLOCKS: dict[str, Callable[[Rows], str]] = {
    "methods": lambda rows: tables.methods(rows.read("table2")),
    "flipped": lambda rows: tables.flipped(rows.read("flipped")),
    "confidence": lambda rows: tables.confidence(rows.read("confidence")),
    "flights": lambda rows: tables.curves(rows.select("flights")),
    "accuracy": lambda rows: accuracy.table(accuracy.read(rows.folder), sparse=False),
    "accuracy-sparse": lambda rows: accuracy.table(
        accuracy.read(rows.folder), sparse=True
    ),
    "accuracy-facts": lambda rows: accuracy.facts(accuracy.read(rows.folder)),
    "estimates": lambda rows: calibration.table(rows.folder),
    "row-curve": lambda rows: row_curve.write_block(rows.folder),
    "predictions": lambda rows: performance.predictions(rows.folder),
    "steps": lambda rows: performance.steps(rows.folder),
    "serving": lambda rows: performance.serving(rows.folder),
    "gpu": lambda rows: scale.gpu_table(rows.folder),
    "gpu-steps": lambda rows: scale.gpu_step_table(rows.folder),
    "gpu-devices": lambda rows: scale.gpu_device_table(rows.folder),
    "law": lambda rows: law.write_table(law.read_rows(rows.folder)),
    "many-rows": lambda rows: scale.rows_table(rows.folder),
}


def marked_documents(root: Path = ROOT) -> dict[Path, str]:
    """Every document with marked tables, and its text."""
    paths = sorted((root / "docs").rglob("*.md"))
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    return {path: text for path, text in texts.items() if BLOCK.search(text)}


def fill_blocks(text: str, rows: Rows) -> str:
    """A document with its marked tables made from rows."""
    return BLOCK.sub(lambda m: f"{m[1]}{BLOCKS[m[2]](rows)}\n{m[3]}", text)


def make_documents(results: Path, root: Path = ROOT) -> dict[Path, str]:
    """Every document with numbers from rows, and the text that it should have."""
    rows = Rows(results)
    texts = read_texts()
    parts = (
        f"# Comparison with other libraries\n\n{texts['comparison']}",
        table_text.write_section(results, texts["comparison-tables"]),
        references.write_section(
            rows.select("vehicle-folds"), texts["comparison-references"]
        ),
    )
    compared = "\n\n".join(part for part in parts if part) + "\n"
    pages = {root / REPRODUCTION: write_reproduction(rows), root / COMPARISON: compared}
    return pages | {
        path: fill_blocks(text, rows) for path, text in marked_documents(root).items()
    }


def figure_digests(results: Path) -> dict[str, str]:
    """Name of each figure → digest of the rows that it must show."""
    rows = Rows(results)
    shown = {
        name: rows.select(name) for name, target in TARGETS.items() if target.figure
    }
    digests = {name: figures.digest(found) for name, found in shown.items() if found}
    digests["accuracy"] = accuracy.digest(accuracy.read(results))
    if (results / row_curve.FILE).exists():
        digests["row_curve"] = row_curve.digest(results)
    return digests


def find_stale(results: Path, root: Path = ROOT) -> list[Path]:
    """Documents and figures that do not show the rows."""
    texts = make_documents(results, root)
    stale = [
        p for p, text in texts.items() if not p.exists() or p.read_text("utf-8") != text
    ]
    for name, digest in figure_digests(results).items():
        path = root / FIGURES / f"{name}.png"
        if not path.exists() or digest.encode() not in path.read_bytes():
            stale.append(path)
    return stale


def write_all(results: Path, root: Path = ROOT) -> int:
    """Write every document and figure that is out of date."""
    stale = find_stale(results, root)
    for name in figure_digests(results):
        path = root / FIGURES / f"{name}.png"
        if path in stale and name == "accuracy":
            accuracy.draw(accuracy.read(results), path)
        elif path in stale and name == "row_curve":
            row_curve.draw(results, path)
        elif path in stale:
            figures.draw(TARGETS[name], TARGETS[name].result_file(results).read(), path)
    for path, text in make_documents(results, root).items():
        path.write_text(text, encoding="utf-8")
    print(
        "\n".join(f"{path.relative_to(root)} written" for path in stale)
        or "All documents are up to date."
    )
    return 0
