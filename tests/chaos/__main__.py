"""The command: python -m tests.chaos --runs N --seed S [--only KIND]."""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cavity import __version__

from .clients import count_requests
from .counting import OUTCOMES, Tally
from .disks import count_full_disks
from .flips import count_checkpoint_flips, count_model_flips
from .inputs import count_damaged_inputs
from .kills import count_fit_kills, count_save_kills, count_terminations
from .ranks import count_disagreeing_ranks, count_silent_ranks
from .writers import count_reads

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "chaos.csv"
FULL = 200  # runs from which the counts are kept in RESULTS
COLUMNS = ("kind", "runs", *OUTCOMES, "seed", "seconds", "version")
Count = Callable[[int, np.random.Generator, Path], Tally]

# kind: (what counts it, its runs for each run that is asked for)
Kinds = dict[str, tuple[Count, float]]
KINDS: Kinds = {
    "kill-fit": (count_fit_kills, 1),
    "kill-save": (count_save_kills, 1),
    "terminate": (count_terminations, 0.25),
    "full-disk": (count_full_disks, 0.5),
    "flip-model": (count_model_flips, 5),
    "flip-checkpoint": (count_checkpoint_flips, 5),
    "two-writers": (count_reads, 5),
    "silent-rank": (count_silent_ranks, 0.05),
    "disagreeing-rank": (count_disagreeing_ranks, 0.05),
    "damaged-input": (count_damaged_inputs, 50),
    "request": (count_requests, 50),
}


def count(kind: str, runs: int, seed: int, kinds: Kinds = KINDS) -> Tally:
    """Count the outcomes of one kind, in a temporary folder."""
    work, share = kinds[kind]
    with tempfile.TemporaryDirectory(prefix="cavity-chaos-") as folder:
        rng = np.random.default_rng([seed, list(kinds).index(kind)])
        return work(max(1, round(runs * share)), rng, Path(folder))


def write_results(
    rows: dict[str, dict[str, object]], path: Path, kinds: Kinds = KINDS
) -> None:
    """Write the rows of these kinds; those of other kinds stay."""
    if path.exists():
        with path.open(newline="") as file:
            rows = {
                row["kind"]: row for row in csv.DictReader(file) if row["kind"] in kinds
            } | rows
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[kind] for kind in kinds if kind in rows)


def main(arguments: list[str] | None = None, kinds: Kinds = KINDS) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument(
        "--runs",
        type=int,
        default=FULL,
        metavar="N",
        help="kills; other kinds in proportion (default 200)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="S", help="random seed (default 0)"
    )
    parser.add_argument(
        "--only",
        choices=kinds,
        action="append",
        metavar="KIND",
        help=f"one of {', '.join(kinds)}",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help=f"CSV file of the counts (default: {RESULTS.name}, from {FULL} runs on)",
    )
    given = parser.parse_args(arguments)
    out = given.out or (RESULTS if given.runs >= FULL else None)
    print(
        f"{'kind':<18}{'runs':>7}"
        + "".join(f"{name:>10}" for name in OUTCOMES)
        + f"{'seconds':>9}"
    )
    failed = False
    rows = {}
    for kind in given.only or kinds:
        begun = time.monotonic()
        tally = count(kind, given.runs, given.seed, kinds)
        seconds = time.monotonic() - begun
        counts = {name: getattr(tally, name) for name in OUTCOMES}
        print(
            f"{kind:<18}{tally.runs:>7}"
            + "".join(f"{n:>10}" for n in counts.values())
            + f"{seconds:>9.0f}",
            flush=True,
        )
        for example in tally.examples:
            print(f"    {example}", file=sys.stderr)
        failed |= tally.failed
        rows[kind] = {
            "kind": kind,
            "runs": tally.runs,
            **counts,
            "seed": given.seed,
            "seconds": round(seconds),
            "version": __version__,
        }
        if out is not None:
            write_results(rows, out, kinds)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
