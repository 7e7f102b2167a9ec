"""The commands behind `python -m cavity.experiments` and `cavity reproduce`: plain functions, and a parser without typer."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cavity.errors import BadOption, CavityError
from cavity.experiments import reproduce
from cavity.experiments.cost import clock
from cavity.experiments.targets import PAPER, TARGETS, Wanted, find


def targets(name: str) -> list[str]:
    """`all` is everything of the papers; targets that share their rows are run once."""
    return list(PAPER) if name == "all" else [find(name).name]


def fit(
    name: str, wanted: Wanted, means: reproduce.Means, plan_only: bool = False, echo: reproduce.Echo = print
) -> int:
    """Run a target and show it; the exit code is 1 where a fit failed."""
    failed, seen = 0, set()
    for target in map(find, targets(name)):
        if plan_only:
            todo, seconds = reproduce.plan(target, wanted, means)
            echo(f"{target.name}: {len(todo)} fits to do, about {clock(sum(seconds.values()))} of one core")
            continue
        if target.file not in seen:
            failed += len(reproduce.run(target, wanted, means, echo).failures)
        seen.add(target.file)
        show(target.name, means.results, echo)
    return 1 if failed else 0


def show(name: str, results: Path, echo: reproduce.Echo = print) -> None:
    """A target's table on the screen, its picture beside the rows."""
    from cavity.experiments import figures, tables

    target = find(name)
    rows = reproduce.file_of(target, results).read()
    if target.figure is None:
        echo(tables.on_screen(target, rows))
        return
    path = results / f"{target.name}.png"
    try:
        drawn = figures.draw(target, rows, path)
    except ModuleNotFoundError as missing:
        if missing.name != "matplotlib":
            raise
        echo(
            f"No picture: matplotlib is not installed (pip install cavity[plot], then `page`). The rows are in {results}."
        )
    else:
        echo(f"{path} drawn" if drawn else "No picture: no rows at the target's full settings.")


def parser() -> argparse.ArgumentParser:
    """Arguments as `cavity reproduce` has them."""
    line = argparse.ArgumentParser(prog="python -m cavity.experiments", description=__doc__)
    line.add_argument("target", nargs="?", help=f"all, {', '.join(TARGETS)}; or page, check")
    line.add_argument("--splits", type=int, help="use fewer repetitions")
    line.add_argument("--sets", nargs="+", default=[], help="only these data sets")
    line.add_argument("--methods", nargs="+", default=[], help="only these methods")
    line.add_argument("--inducing", nargs="+", default=[], help="only these M, such as 5%% or 200")
    line.add_argument(
        "--epochs", type=int, help="at most so many epochs a fit; kept apart from the full rows"
    )
    line.add_argument("--jobs", type=int, default=1, help="processes")
    line.add_argument("--threads", type=int, default=1, help="threads of each process")
    line.add_argument(
        "--budget", type=float, help="seconds in all; fits that would not end in time are left out"
    )
    line.add_argument("--data", help="folder with the tables (default: $CAVITY_DATA, then OpenML)")
    line.add_argument("--device", default="cpu", help="cpu, cuda or auto")
    line.add_argument(
        "--results", type=Path, help="folder of the rows (default: benchmarks/results in a clone)"
    )
    line.add_argument("--plan", action="store_true", help="only say what is to do and how long it may take")
    line.add_argument("--check", action="store_true", help="recompute three random rows and compare")
    line.add_argument("--seed", type=int, help="which rows --check picks")
    line.add_argument(
        "--seconds", type=float, default=120.0, help="--check picks fits that took at most so long"
    )
    return line


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a mistake of the user's is a sentence."""
    line = parser()
    args = line.parse_args(arguments)
    results = args.results or reproduce.default_results()
    means = reproduce.Means(results, args.jobs, args.budget, args.data, args.device, args.threads)
    try:
        return _dispatch(args, means, line)
    except CavityError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, BadOption) else 1
    except KeyboardInterrupt:
        print("interrupted: the same command goes on where this one stopped", file=sys.stderr)
        return 130


def _dispatch(args: argparse.Namespace, means: reproduce.Means, line: argparse.ArgumentParser) -> int:
    if args.check or args.target == "check":
        from cavity.experiments import check

        return check.run(means, args.seed, args.seconds)
    if args.target is None:
        line.error("name a target")
    if args.target == "page":
        from cavity.experiments import page

        return page.write_all(Path.cwd(), means.results)
    wanted = Wanted(tuple(args.sets), tuple(args.methods), tuple(args.inducing), args.splits, args.epochs)
    return fit(args.target, wanted, means, args.plan)
