"""Test NLL and error on the papers' tables beside the published numbers: Table 2 of `cavity reproduce`, fitted here.

    python benchmarks/quality.py [--methods ep sep | all] [--sets wine ...] [--splits 20] [--m 0.1] [--jobs 2] [--data FOLDER]

Rows go to --results (default bench-results), and a second run goes on where the first stopped. --flip redraws 10 % of the
training labels (M = 10 to 40 %, as in docs/methods.md).
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean

from cavity.experiments.commands import main as run

ALL = ["ep", "sep", "rep", "pep", "vi", "vi_natural", "vi_softmax", "gfitc"]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", nargs="+", default=["ep", "sep"], help=f"all: {' '.join(ALL)}")
    parser.add_argument("--sets", nargs="+", default=[])
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--m", type=float, default=0.1, help="inducing points, as a share of the rows")
    parser.add_argument("--flip", action="store_true", help="wrong labels: the target `flipped`")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--data", help="folder with the tables (default: $CAVITY_DATA, then OpenML)")
    parser.add_argument("--results", default="bench-results")
    args = parser.parse_args()
    methods = ALL if "all" in args.methods else args.methods
    words = ["flipped" if args.flip else "table2", "--splits", str(args.splits), "--jobs", str(args.jobs)]
    words += ["--results", args.results, *(["--data", args.data] if args.data else [])]
    words += ["--sets", *args.sets] if args.sets else []
    words += [] if args.flip else ["--methods", *methods, "--inducing", f"{100 * args.m:g}%"]
    code = run(words)
    means(Path(args.results) / f"{words[0]}.csv")
    return code


def means(path: Path) -> None:
    """NLL, error, calibration error and seconds of every method, in the mean over splits."""
    groups: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    for row in csv.DictReader(path.open()) if path.exists() else ():
        groups[row["dataset"], row["M"], row["method"]].append(row)
    print(
        f"\n{'data set':12} {'M':>5} {'method':12} {'splits':>6} {'NLL':>7} {'error':>7} {'ECE':>7} {'seconds':>8}"
    )
    for (name, M, method), rows in sorted(groups.items()):
        nll, error, ece, seconds = (
            fmean(float(r[k] or "nan") for r in rows) for k in ("nll", "error", "ece", "seconds")
        )
        print(
            f"{name:12} {M:>5} {method:12} {len(rows):6d} {nll:7.4f} {error:7.4f} {ece:7.4f} {seconds:8.2f}"
        )


if __name__ == "__main__":
    sys.exit(main())
