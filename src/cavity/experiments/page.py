"""The pages that are made from rows: docs/reproduction.md, docs/comparison.md, and marked tables in other documents."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from cavity.experiments import comparison, figures, hardware, tables, toy_evidence
from cavity.experiments.methods import title
from cavity.experiments.reproduce import file_of
from cavity.experiments.rows import Row
from cavity.experiments.targets import PAPER, SHARES, TARGETS, TOY_METHODS, Target
from cavity.experiments.texts import paragraphs
from cavity.experiments.verdicts import cells, of_target

REPRODUCTION, COMPARISON, PICTURES = (
    Path("docs/reproduction.md"),
    Path("docs/comparison.md"),
    Path("docs/figures"),
)
MARKED = ("README.md", "docs/methods.md", "docs/scale.md")
BLOCK = re.compile(r"(<!-- rows: ([\w-]+) -->\n).*?(<!-- end of rows -->)", re.DOTALL)


class Rows:
    """The result files of a folder, each read once."""

    def __init__(self, results: Path) -> None:
        self.folder = results
        self.of = cache(lambda name: file_of(TARGETS[name], results).read())

    def target(self, name: str) -> list[Row]:
        """Rows at the target's full settings."""
        return of_target(TARGETS[name], self.of(name))


def reproduction(rows: Rows) -> str:
    """The whole page."""
    return (
        "\n\n".join(
            [
                "# The papers again",
                paragraphs()["head"],
                *(section(TARGETS[name], rows) for name in PAPER),
                further(rows, "mnist-variants"),
                further(rows, "mnist-best"),
            ]
        )
        + "\n"
    )


def section(target: Target, rows: Rows) -> str:
    """A target: how much of it is there, table or picture, and why it differs."""
    found = rows.target(target.name)
    parts = [f"## {target.title}", _state(target, found)]
    if found:
        parts += [part for part in BODIES[target.name](found) if part]
        if target.figure:
            parts.append(f"![{target.title}](figures/{target.name}.png)")
        parts.append(paragraphs().get(target.name, ""))
    if target.name == "table2":
        parts.append(new_thyroid(rows))
    return "\n\n".join(part for part in parts if part)


def _state(target: Target, found: list[Row]) -> str:
    have = len({(r["settings"], r["split"]) for r in found})
    total = len(target.jobs())
    if not have:
        return f"Not run yet: `cavity reproduce {target.name}`."
    commits = ", ".join(sorted({r["commit"] for r in found if r["commit"]}))
    return f"{have} of {total} fits (`cavity reproduce {target.name}`); rows of commits {commits}."


def _table2(rows: list[Row]) -> list[str]:
    shares = [s for s in SHARES if any(r["inducing"] == s for r in rows)]
    over = tables.worse(rows)
    return [
        tables.counts(rows),
        *(f"### M = {s}\n\n{tables.papers(rows, s, 'nll')}" for s in shares),
        "Marked ✗: " + "; ".join(over) + "." if over else "No cell is marked ✗.",
        "### As shipped\n\n" + paragraphs()["shipped"],
        tables.auto(rows),
        "### Seconds\n\n" + paragraphs()["seconds"],
        tables.seconds(rows),
    ]


def _table3(rows: list[Row]) -> list[str]:
    shares = [s for s in SHARES if any(r["inducing"] == s for r in rows)]
    return [f"### M = {s}\n\n{tables.papers(rows, s, 'error')}" for s in shares]


def new_thyroid(rows: Rows) -> str:
    """Evidence of how much splits matter."""
    found = rows.target("new_thyroid")
    if not found:
        return ""
    few, many = cells([r for r in found if r["split"] < 20], "nll"), cells(found, "nll")
    lines = [[title(p[2]), few[p].text(), f"{many[p].text()} [{many[p].n}]"] for p in sorted(many)]
    return (
        paragraphs()["new_thyroid"]
        + "\n\n"
        + tables.markdown(["new_thyroid, M = 10%", "20 splits", "all"], lines)
    )


def _toy(rows: list[Row]) -> list[str]:
    lines = []
    for size in toy_evidence.SIZES:
        start = toy_evidence.at_start(size)
        lines.append([f"M = {size}, start", f"{100 * start[0]:.0f} %", f"{start[1]:.2f}", "0 %", ""])
        for method in TOY_METHODS:
            for row in [r for r in rows if r["method"] == method and r["inducing"] == str(size)]:
                near, far, out = toy_evidence.line(row)
                score = f"{row['nll']:.3f}, {row['error']:.3f}"
                lines.append(
                    [title(method), f"{100 * near:.0f} %", f"{far:.2f}", f"{100 * out:.0f} %", score]
                )
    head = [
        "",
        "points within 0.1 of another",
        "median distance to the boundary",
        "outside the box",
        "test NLL, error",
    ]
    return [tables.markdown(head, lines)]


def _satellite(score: str) -> Callable[[list[Row]], list[str]]:
    def body(rows: list[Row]) -> list[str]:
        ends = [r for r in rows if r["last"] == 1]
        value, time = cells(ends, score), cells(ends, "seconds")
        order = sorted(value, key=lambda p: (p[1], int(p[0]), p[2]))
        lines = [
            [p[1], p[0], title(p[2]), value[p].text(4), f"{time[p].mean:.1f}", str(value[p].n)] for p in order
        ]
        return [
            tables.markdown(
                ["rows", "M", "method", f"test {score} at the end", "seconds", "repetitions"], lines
            )
        ]

    return body


def _fig1(rows: list[Row]) -> list[str]:
    ends = [r for r in rows if r["last"] == 1]
    value, time = cells(ends, "log_evidence"), cells(ends, "seconds")
    lines = [[p[2], value[p].text(1), f"{time[p].mean:.1f}", str(value[p].n)] for p in value]
    return [tables.markdown(["schedule", "log Z_q after 250 updates", "seconds", "splits"], lines)]


def _expected(rows: list[Row]) -> list[str]:
    lines = []
    for dataset in dict.fromkeys(r["dataset"] for r in rows):
        line = [r for r in rows if r["dataset"] == dataset and r["expected_log_p"] == r["expected_log_p"]]
        if line:
            first, last = line[0], line[-1]
            best = min(line, key=lambda r: r["nll"])
            lines.append(
                [dataset]
                + [
                    f"{-r['nll']:.3f}, {r['expected_log_p']:.3f} ({r['passes']:.3f})"
                    for r in (first, best, last)
                ]
            )
    head = ["flights", "first: log E p, E log p (passes)", "where log E p is highest", "last"]
    return [tables.markdown(head, lines)] if lines else []


def further(rows: Rows, name: str) -> str:
    """MNIST otherwise than in the papers."""
    found = rows.target(name)
    text = tables.mnist(found) if found else f"Not run yet: `cavity reproduce {name} --device cuda`."
    return "\n\n".join(filter(None, [f"## {TARGETS[name].title}", text, paragraphs().get(name, "")]))


BODIES: dict[str, Callable[[list[Row]], list[str]]] = {
    "table2": _table2,
    "table3": _table3,
    "fig1": _fig1,
    "fig3": _toy,
    "fig4": _satellite("nll"),
    "fig6": _satellite("error"),
    "fig5-mnist": lambda rows: [tables.mnist(rows)],
    "fig5-airline": lambda rows: [tables.curves(rows, "seconds")],
    "fig7": _expected,
}

BLOCKS: dict[str, Callable[[Rows], str]] = {
    "headline": lambda rows: tables.headline(rows.of("table2")),
    "methods": lambda rows: tables.methods(rows.of("table2")),
    "flipped": lambda rows: tables.flipped(rows.of("flipped")),
    "flights": lambda rows: tables.curves(rows.target("flights")),
    "ranks": lambda rows: comparison.ranks(rows.target("compare")),
    "gpu": lambda rows: hardware.gpu(rows.folder),
    "gpu-line": lambda rows: hardware.gpu_line(rows.folder),
    "gpu-steps": lambda rows: hardware.gpu_steps(rows.folder),
}


def marked(text: str, rows: Rows) -> str:
    """A document with its marked tables made anew."""
    return BLOCK.sub(lambda m: f"{m[1]}{BLOCKS[m[2]](rows)}\n{m[3]}", text)


def documents(root: Path, results: Path) -> dict[Path, str]:
    """Every document that has numbers from rows, as it should read."""
    rows = Rows(results)
    pages = {REPRODUCTION: reproduction(rows), COMPARISON: comparison.page(rows.target("compare"))}
    pages |= {Path(name): marked((root / name).read_text(encoding="utf-8"), rows) for name in MARKED}
    return {root / path: text for path, text in pages.items()}


def pictures(results: Path) -> dict[str, str]:
    """File name → digest of the rows that its picture must show."""
    rows = Rows(results)
    drawn = {name: rows.target(name) for name, target in TARGETS.items() if target.figure}
    return {f"{name}.png": figures.digest(found) for name, found in drawn.items() if found}


def stale(root: Path, results: Path) -> list[str]:
    """What does not say what the rows say."""
    old = [
        str(p)
        for p, text in documents(root, results).items()
        if not p.exists() or p.read_text("utf-8") != text
    ]
    for name, digest in pictures(results).items():
        path = root / PICTURES / name
        if not path.exists() or digest.encode() not in path.read_bytes():
            old.append(str(path))
    return old


def write_all(root: Path, results: Path) -> int:
    """Make the documents and their pictures anew."""
    before = stale(root, results)
    for name in pictures(results):
        if str(root / PICTURES / name) in before:
            target = TARGETS[name.removesuffix(".png")]
            figures.draw(target, file_of(target, results).read(), root / PICTURES / name)
    for path, text in documents(root, results).items():
        path.write_text(text, encoding="utf-8")
    print("\n".join(f"{path} written" for path in before) or "Every document says what the rows say.")
    return 0
