"""Markdown tables of the papers' experiments, made from rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from experiments.jobs import Row
from experiments.methods import title
from experiments.scores import (
    Cell,
    CellKey,
    agrees,
    best_published,
    combined_error,
    is_close,
    mark,
    mean_cells,
    published,
)
from experiments.sets import UCI
from experiments.targets import (
    ALL_SPLITS,
    FEW_SPLITS,
    SHARES,
    SURE_METHODS,
    TABLE_METHODS,
    TARGETS,
    Target,
)

# method, rule, number of cells that must satisfy it
REQUIRED = (
    ("ep", agrees, 20),
    ("sep", agrees, 20),
    ("gfitc", is_close, 18),
    ("vi", is_close, 18),
)
N_CELLS = len(UCI) * len(SHARES)
SHIPPED = {"auto": "version 0.1", "fast": '`effort="fast"`', "balanced": "default"}


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    rule = "|" + "---|" * len(head)
    return "\n".join(
        [
            "| " + " | ".join(head) + " |",
            rule,
            *("| " + " | ".join(line) + " |" for line in lines),
        ]
    )


def bold_lowest(cells: dict[str, float], methods: Sequence[str]) -> list[str]:
    """The values of a line, the lowest in bold, a dash for a missing one."""
    low = min(cells.values())
    texts = {m: f"**{v:.3f}**" if v == low else f"{v:.3f}" for m, v in cells.items()}
    return [texts.get(m, "–") for m in methods]


def screen_text(target: Target, rows: list[Row]) -> str:
    """What the command prints at its end."""
    if target.file == "table2":
        score = "error" if target.name == "table3" else "nll"
        shown = [
            s for s in SHARES if any(r["inducing"] == s for r in target.select(rows))
        ]
        return "\n\n".join(
            [
                *(f"M = {s}\n\n{paper_table(rows, s, score)}" for s in shown),
                counts(rows),
            ]
        )
    if target.name == "table2-efforts":
        return shipped(target.select(rows))
    return flipped(rows) if target.file == "flipped" else f"{len(rows)} rows"


def paper_table(rows: list[Row], share: str, score: str) -> str:
    """One M of Table 2 or 3: ours±standard error (published±standard error) and a mark
    for agreement.
    """
    ours = mean_cells(TARGETS["table2"].select(rows), score)
    theirs = published(score)
    lines = []
    for dataset in UCI:
        line = [dataset]
        for method in TABLE_METHODS:
            mine = ours.get((share, dataset, method))
            other = theirs.get((share, dataset, method))
            line.append("–" if mine is None else _pair(mine, other))
        if set(line[1:]) != {"–"}:
            lines.append(line)
    return markdown(["data set", *map(title, TABLE_METHODS)], lines)


def _pair(mine: Cell, other: Cell | None) -> str:
    if other is None:
        return f"{mine.text()} [{mine.n}]"
    return f"{mine.text()} ({other.text(2)}) {mark(mine, other)}" + (
        "" if mine.n >= 5 else f" [{mine.n}]"
    )


def counts(rows: list[Row]) -> str:
    """Number of cells of Table 2 in which each method agrees with the papers."""
    ours = mean_cells(TARGETS["table2"].select(rows), "nll")
    theirs = published("nll")
    lines = []
    for method in TABLE_METHODS:
        pairs = [
            (c, theirs[p]) for p, c in ours.items() if p[2] == method and p in theirs
        ]
        splits = sorted({c.n for c, _ in pairs})
        spread = (
            f"{splits[0]} to {splits[-1]}"
            if len(splits) > 1
            else "".join(map(str, splits))
        )
        good = sum(agrees(*p) for p in pairs)
        close = sum(is_close(*p) or agrees(*p) for p in pairs)
        better = sum(m.mean < t.mean - 2 * combined_error(m, t) for m, t in pairs)
        lines.append(
            [
                title(method),
                str(len(pairs)),
                spread,
                str(good),
                str(close),
                str(better),
                _requirement(method, pairs),
            ]
        )
    head = [
        "method",
        f"cells (of {N_CELLS})",
        "splits",
        "✓",
        "✓ or ≈",
        "better by two se",
        "required",
    ]
    return markdown(head, lines)


def _requirement(method: str, pairs: list[tuple[Cell, Cell]]) -> str:
    """The required agreement, and whether it is met."""
    for name, rule, least in REQUIRED:
        if name == method:
            got = sum(rule(*pair) for pair in pairs)
            verdict = "open"
            if got >= least:
                verdict = "met"
            elif len(pairs) == N_CELLS:
                verdict = "not met"
            return f"{least} {'✓' if rule is agrees else 'within two se'}: {verdict} ({got})"
    return ""


def shipped(rows: list[Row]) -> str:
    """GPClassifier at each effort, and the best published number of any method and M."""
    ours = mean_cells(rows, "nll")
    methods = [m for m in SHIPPED if any((("", d, m) in ours) for d in UCI)]
    if not methods:
        return "No rows yet: `python -m experiments table2-efforts`."
    lines = []
    for dataset in UCI:
        best = best_published(dataset)
        cells = [ours.get(("", dataset, m)) for m in methods]
        lines.append([dataset, *(_with_mark(c, best) for c in cells), best.text(2)])
    head = ["data set", *(SHIPPED[m] for m in methods), "best published"]
    return f"{markdown(head, lines)}\n\n{_shipped_counts(ours, methods)}"


def _with_mark(mine: Cell | None, best: Cell) -> str:
    if mine is None:
        return "–"
    few = "" if mine.n >= ALL_SPLITS else f" [{mine.n}]"
    return f"{mine.text()} ({mine.mean - best.mean:+.3f}) {mark(mine, best)}{few}"


def _shipped_counts(ours: dict[CellKey, Cell], methods: list[str]) -> str:
    """On how many sets each column is at or below the best published number."""
    parts = []
    for method in methods:
        pairs = [
            (ours["", d, method], best_published(d))
            for d in UCI
            if ("", d, method) in ours
        ]
        below = sum(m.mean <= b.mean for m, b in pairs)
        agreeing = sum(agrees(*pair) for pair in pairs)
        parts.append(
            f"{SHIPPED[method]} on {below} of {len(pairs)} sets (✓ on {agreeing})"
        )
    return f"At or below the best published number: {'; '.join(parts)}."


def seconds(rows: list[Row]) -> str:
    """Mean seconds per fit over the data sets, for each method and M."""
    ours = mean_cells(TARGETS["table2"].select(rows), "seconds")
    lines = []
    for share in SHARES:
        line = [f"M = {share}"]
        for method in TABLE_METHODS:
            found = [
                ours[share, d, method].mean for d in UCI if (share, d, method) in ours
            ]
            cell = f"{np.mean(found):.0f}" if found else "–"
            if 0 < len(found) < len(UCI):
                cell += f" ({len(found)} sets)"
            line.append(cell)
        lines.append(line)
    return markdown(["", *map(title, TABLE_METHODS)], lines)


def methods(rows: list[Row]) -> str:
    """Eight methods on the first five splits with M = 10 %."""
    names = ("ep", "sep", "rep", "pep", "gfitc", "vi", "vi_natural", "vi_softmax")
    some = [
        r
        for r in TARGETS["table2"].select(rows)
        if r["split"] < FEW_SPLITS and r["inducing"] == "10%"
    ]
    nll, error, time = (
        mean_cells(some, score) for score in ("nll", "error", "seconds")
    )
    chosen = [d for d in UCI if all(("10%", d, m) in nll for m in names)]
    lines = [
        [
            d,
            *(
                f"{nll['10%', d, m].text()} ({100 * error['10%', d, m].mean:.1f})"
                for m in names
            ),
        ]
        for d in chosen
    ]
    lines.append(
        [
            "seconds, in this order",
            *(" ".join(f"{time['10%', d, m].mean:.0f}" for d in chosen) for m in names),
        ]
    )
    return markdown(["data set", *names], lines)


def flipped(rows: list[Row]) -> str:
    """10 % of the training labels redrawn."""
    some = TARGETS["flipped"].select(rows)
    nll = mean_cells(some, "nll")
    eps = _ranges(some)
    lines = []
    for d in ("vowel6", "vehicle"):
        for share in ("10%", "20%", "30%", "40%"):
            robust = "rep" if share == "10%" else "rep_learnt"
            found = [
                nll[share, d, m].text() if (share, d, m) in nll else "–"
                for m in ("ep", "sep", robust)
            ]
            lines.append(
                [
                    f"{d}, {share}",
                    *found,
                    "fixed at 0.001" if share == "10%" else eps.get((share, d), "–"),
                ]
            )
    return markdown(
        ["data set, M", "ep", "sep", "rep", "learnt ε, mean (range)"], lines
    )


def confidence(rows: list[Row]) -> str:
    """NLL, accuracy and mean confidence on clean and on noisy labels."""
    some = TARGETS["confidence"].select(rows)
    lines = []
    nll, error, sure = (
        mean_cells(some, score) for score in ("nll", "error", "confidence")
    )
    for d, labels in (("five_digits", "clean"), ("five_digits_noisy", "noisy")):
        for m in SURE_METHODS:
            key = ("", d, m)
            method = "EP" if m.startswith("ep") else "VI"
            calibration = '"temperature"' if m.endswith("temperature") else "None"
            found = (
                nll[key].text(),
                f"{1 - error[key].mean:.3f}",
                f"{sure[key].mean:.3f}",
            )
            lines.append([labels, method, f"`{calibration}`", *found])
    return markdown(
        ["labels", "method", "`calibration=`", "NLL", "accuracy", "mean confidence"],
        lines,
    )


def _ranges(rows: list[Row]) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row["method"] == "rep_learnt":
            found.setdefault((row["inducing"], row["dataset"]), []).append(
                row["epsilon"]
            )
    return {
        k: f"{np.mean(v):.3f} ({min(v):.3f} to {max(v):.3f})" for k, v in found.items()
    }


def curves(rows: list[Row], against: str = "passes") -> str:
    """Scores at the end of recorded fits, and when each became better than logistic
    regression for good.
    """
    lines = []
    for dataset in dict.fromkeys(r["dataset"] for r in rows):
        some = [r for r in rows if r["dataset"] == dataset]
        linear = next((r for r in some if r["method"] == "logistic"), None)
        for method in dict.fromkeys(r["method"] for r in some):
            line = sorted(
                (r for r in some if r["method"] == method), key=lambda r: r["moment"]
            )
            lines.append(_curve(dataset, method, line, linear, against))
    head = [
        "data set",
        "method",
        "NLL at the end",
        "error",
        "lowest NLL during the fit",
        f"better than logistic regression after ({against})",
    ]
    return markdown([*head, "seconds"], lines)


def _curve(
    dataset: str, method: str, line: list[Row], linear: Row | None, against: str
) -> list[str]:
    last = line[-1]
    best = min(r["nll"] for r in line)
    first = None
    if linear is not None and method != "logistic":
        worse = [
            i
            for i, r in enumerate(line)
            if r["nll"] >= linear["nll"] or r["error"] >= linear["error"]
        ]
        start = worse[-1] + 1 if worse else 0
        first = line[start][against] if start < len(line) else math.inf
    when = ""
    if first is not None:
        when = "never" if math.isinf(first) else f"{first:.3g}"
    scores = [f"{last['nll']:.4f}", f"{last['error']:.4f}", f"{best:.4f}"]
    return [dataset, title(method), *scores, when, f"{last['seconds']:.0f}"]


def mnist(rows: list[Row]) -> str:
    """Scores at the end of runs on MNIST, with the published values."""
    theirs = {score: published(score) for score in ("nll", "error")}
    lines = []
    for row in rows:
        if row["last"] == 1:
            place = ("200", "mnist", row["method"].split("_")[0])
            known = [
                theirs[s].get(place) if row["inducing"] == "200" else None
                for s in ("nll", "error")
            ]
            shown = [f" ({k.mean:.4f})" if k else "" for k in known]
            scores = [f"{row['nll']:.4f}{shown[0]}", f"{row['error']:.4f}{shown[1]}"]
            lines.append(
                [
                    title(row["method"]),
                    row["inducing"],
                    *scores,
                    f"{row['seconds']:.0f}",
                    row["device"],
                ]
            )
    return markdown(
        ["method", "M", "NLL (published)", "error (published)", "seconds", "device"],
        lines,
    )
