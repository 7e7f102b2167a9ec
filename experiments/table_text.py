"""What the records of `tables` say, in words and tables: ratios, laws, estimates, and
what each member buys.
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median

from experiments.table_fits import MEMBERS, PEERS
from experiments.table_summary import (
    FILE,
    LAWS,
    Result,
    compare,
    find_coverage,
    find_excess,
    find_ranks,
    find_slow,
    fit_seconds,
    floored_nll,
    geometric_mean,
    has_tables,
    mean_nll,
    read_results,
)
from experiments.tables import bold_lowest, markdown

BASES = ("hgb", "cat", "lgbm", "lr")  # that ratios are of
NAMES = {
    "default": "cavity, default",
    "fast": 'cavity, `"fast"`',
    "hgb": "HistGradientBoosting",
    "lgbm": "LightGBM",
    "cat": "CatBoost",
    "lr": "logistic regression",
    "prior": "class frequencies",
    "realmlp": "RealMLP",
    "autogluon": "AutoGluon, 90 s",
}
TITLES = {
    "choose": "Tables that defaults were chosen on: {}",
    "report": "Tables that decided nothing: {}",
}


def name(method: str) -> str:
    """Name of a method in tables."""
    tree, _, method = method.rpartition(":")
    return NAMES.get(method, method) + (f" ({tree})" if tree else "")


def is_ours(method: str) -> bool:
    return method.rpartition(":")[2] not in PEERS


def _is_part(method: str) -> bool:
    """Whether a method is a pool without a member."""
    return method.partition("-")[2] in MEMBERS


def order_methods(results: list[Result]) -> list[str]:
    """Return the methods that have results: ours, then the peers."""
    found = dict.fromkeys(r.method for r in results if not _is_part(r.method))
    first = [m for m in NAMES if m in found]
    return [
        *(m for m in first if is_ours(m)),
        *(m for m in found if m not in first),
        *(m for m in first if not is_ours(m)),
    ]


def ratio_table(results: list[Result]) -> str:
    """Ranks, and ratios to the bases; best rank first.

    Methods without every table have no rank.
    """
    methods = order_methods(results)
    most = max(len(has_tables(results, m)) for m in methods)
    ranks = find_ranks(
        results, [m for m in methods if len(has_tables(results, m)) == most]
    )
    bases = [b for b in BASES if b in methods]
    lines = []
    for m in sorted(methods, key=lambda m: ranks[m].mean if m in ranks else math.inf):
        seconds = compare(results, m, "hgb", fit_seconds, one_machine=True).values()
        nll = {b: compare(results, m, b, floored_nll) for b in bases}
        won = nll.get("hgb", {}).values()
        wins = ""
        if m != "hgb" and won:
            wins = f"{sum(log < 0 for log in won)} of {len(won)}"
        losses = []
        for b in bases:
            ratio = "1" if b == m else "–"
            if b != m and nll[b]:
                ratio = geometric_mean(nll[b].values()).text()
            losses.append(ratio)
        lines.append([
            name(m),
            str(len(has_tables(results, m))),
            ranks[m].text(2) if m in ranks else "–",
            *losses,
            wins,
            f"{geometric_mean(seconds).mean:.2g}" if seconds else "–",
        ])  # fmt: skip
    ratios = (f"NLL / {NAMES[b]}" for b in bases)
    return markdown(
        [
            "method",
            "tables",
            "rank",
            *ratios,
            "better than boosting",
            "seconds / HistGradientBoosting",
        ],
        lines,
    )


def nll_table(results: list[Result]) -> str:
    """NLL of every table, the mean over its seeds."""
    methods, lines = order_methods(results), []
    nll = {m: mean_nll(results, m) for m in methods}
    for table, some in sorted({r.table: r for r in results}.items()):
        cells = {m: nll[m][table] for m in methods if table in nll[m]}
        if cells:
            facts = [table, f"{some.rows:,}", str(some.columns), str(some.classes)]
            lines.append([*facts, *bold_lowest(cells, methods)])
    return markdown(
        ["table", "training rows", "columns", "classes", *map(name, methods)], lines
    )


def law_table(results: list[Result]) -> str:
    """On which tables ours is worse than a simple method by more than two paired
    errors.
    """
    lines = []
    for m in (m for m in order_methods(results) if is_ours(m)):
        for base, words in LAWS.items():
            found = find_excess(results, m, base)
            worse = sorted((e for e in found if e.is_worse), key=lambda e: -e.mean)
            where = ", ".join(f"{e.table} (+{e.mean:.3f} ± {e.se:.3f})" for e in worse)
            if found:
                lines.append([name(m), words, f"{len(worse)} of {len(found)}", where])
    return markdown(["method", "worse than", "tables", "where"], lines) if lines else ""


def member_table(results: list[Result]) -> str:
    """What each member buys: the default without it, divided by the default."""
    lines = []
    for m in (f"default-{member}" for member in MEMBERS):
        nll = compare(results, m, "default", floored_nll)
        if nll:
            seconds = compare(
                results, m, "default", fit_seconds, one_machine=True
            ).values()
            cells = [
                geometric_mean(nll.values()).text(4),
                str(sum(log > 0 for log in nll.values())),
            ]
            share = f"{geometric_mean(seconds).mean:.2f}" if seconds else "–"
            lines.append([m.partition("-")[2], str(len(nll)), *cells, share])
    head = [
        "without",
        "tables",
        "NLL / default",
        "tables that it helps",
        "seconds / default",
    ]
    return markdown(head, lines) if lines else ""


def compare_peers(results: list[Result]) -> list[str]:
    """A sentence for each peer that has one split of a table."""
    said = []
    for m in ("realmlp", "autogluon"):
        nll = compare(results, "default", m, floored_nll)
        if nll:
            won, ratio = (
                sum(log < 0 for log in nll.values()),
                geometric_mean(nll.values()).text(),
            )
            ours, theirs = (
                median(r.fit for r in results if r.method == k and not r.seed)
                for k in ("default", m)
            )
            said.append(
                f"{name('default')} has {ratio} of the NLL of {name(m)} on {len(nll)} "
                f"tables, and a lower one on {won}; "
                f"the median of the seconds is {ours:.1f}, and {theirs:.0f} for "
                f"{name(m)}, on another machine."
            )
    return said


def sentences(results: list[Result]) -> str:
    """Slow tables of "fast", gain of the efforts, peers with few tables, and coverage
    of the estimates.
    """
    said = []
    both = compare(results, "fast", "default", fit_seconds, one_machine=True)
    if both:
        slow = find_slow(results)
        where = ", ".join(
            f"{t} {r:.2f}" for t, r in sorted(slow.items(), key=lambda item: -item[1])
        )
        said.append(
            f'`"fast"` takes more than half of the default\'s seconds on {len(slow)} '
            f"of {len(both)} tables" + (f": {where}." if where else ".")
        )
    older = [(m.rpartition(":")[2], m) for m in order_methods(results) if ":" in m]
    for m, base in (("fast", "default"), *older):
        nll = compare(results, m, base, floored_nll)
        if nll:
            seconds = compare(results, m, base, fit_seconds, one_machine=True).values()
            times = (
                f" at {geometric_mean(seconds).mean:.2f} of its seconds"
                if seconds
                else ""
            )
            said.append(
                f"{name(m)} has {geometric_mean(nll.values()).text()} of the NLL of "
                f"{name(base)}{times}."
            )
    said += compare_peers(results)
    for m in order_methods(results):
        covered, count, z = find_coverage(results, m)
        if count:
            said.append(
                f"`estimate_` of {name(m)} covers the test NLL within two errors in "
                f"{covered} of {count} fits (mean z {z:+.2f})."
            )
    return "\n".join(said)


def summarize(results: list[Result]) -> str:
    """Return all tables, the collections and uses apart."""
    parts = []
    for collection, use in dict.fromkeys((r.collection, r.use) for r in results):
        some = [r for r in results if (r.collection, r.use) == (collection, use)]
        tables = (ratio_table, law_table, sentences, member_table, nll_table)
        parts += [
            f"### {TITLES.get(use, use).format(collection)}",
            *(table(some) for table in tables),
        ]
    return "\n\n".join(part for part in parts if part) or "No results."


def write_section(results: Path, text: str) -> str:
    """Return the section of docs/results/comparison.md; an empty string without
    results.
    """
    found = read_results(results / FILE)
    return (
        f"## Tables as people have them\n\n{text}\n\n{summarize(found)}"
        if found
        else ""
    )
