"""The command line: `python -m experiments TARGET`.

It needs neither typer nor matplotlib.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from cavity.errors import BadOption, CavityError
from experiments.check import check_rows
from experiments.runner import (
    RESULTS,
    Echo,
    RunOptions,
    format_duration,
    plan,
    run_target,
)
from experiments.targets import PAPER, TARGETS, Selection, find_target

COMMANDS = {  # with options of their own
    "tables": "table_runs",
    "curve": "row_curve",
    "decisions": "decisions",
    "law": "law",
}


def run(
    name: str,
    selection: Selection,
    options: RunOptions,
    plan_only: bool = False,
    echo: Echo = print,
) -> int:
    """Run a target and show it.

    Return 1 if a fit failed. "all" is every table and figure of the papers.
    """
    failed = 0
    seen = set()
    for target in map(find_target, PAPER if name == "all" else [name]):
        if plan_only:
            todo, seconds = plan(target, selection, options)
            total = format_duration(sum(seconds.values()))
            echo(f"{target.name}: {len(todo)} fits to do, about {total} of one core")
            continue
        if target.jobs not in seen:  # some targets show the same fits
            failed += len(run_target(target, selection, options, echo).failures)
        seen.add(target.jobs)
        show(target.name, options.results, echo)
    return 1 if failed else 0


def show(name: str, results: Path, echo: Echo = print) -> None:
    """Print the table of a target, or save its figure next to the rows."""
    from experiments import figures, tables

    target = find_target(name)
    rows = target.result_file(results).read()
    if target.figure is None:
        echo(tables.screen_text(target, rows))
        return
    path = results / f"{target.name}.png"
    try:
        drawn = figures.draw(target, rows, path)
    except ModuleNotFoundError as missing:
        if missing.name != "matplotlib":
            raise
        echo(
            f"No figure: matplotlib is not installed (pip install 'cavity[plot]'). The "
            f"rows are in {results}."
        )
    else:
        echo(
            f"{path} drawn"
            if drawn
            else "No figure: there are no rows at the full settings of this target."
        )


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def make_parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description="Reproduce the papers' tables and figures, and compare cavity with "
        "other libraries.",
    )
    add = parser.add_argument
    add(
        "target",
        nargs="?",
        help=f"all, {', '.join(TARGETS)}; or {', '.join(COMMANDS)}, page, check",
    )
    add("--splits", type=_positive, help="number of splits (default: all)")
    add("--sets", nargs="+", default=[], help="only these data sets")
    add("--methods", nargs="+", default=[], help="only these methods")
    add("--inducing", nargs="+", default=[], help="only these M, such as 5%% or 200")
    add(
        "--epochs",
        type=_positive,
        help="at most this many epochs per fit; the pages do not use such rows",
    )
    add("--jobs", type=_positive, default=1, help="number of processes")
    add("--threads", type=_positive, default=1, help="threads per process")
    add(
        "--budget",
        type=float,
        help="total seconds; fits that would not end in time are skipped",
    )
    add("--data", help="folder with the data sets (default: $CAVITY_DATA, then OpenML)")
    add("--device", default="cpu", help="cpu, cuda or auto")
    add(
        "--results",
        type=Path,
        default=RESULTS,
        help="folder of the rows (default: benchmarks/results)",
    )
    add(
        "--plan",
        action="store_true",
        help="only print what is to do and how long it may take",
    )
    add("--check", action="store_true", help="recompute three random rows and compare")
    add("--seed", type=int, help="random seed of --check (default: a new one)")
    add(
        "--seconds",
        type=float,
        default=120.0,
        help="--check: longest fit to recompute (default 120)",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. An error of the user is printed as one sentence."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in COMMANDS:
        return int(
            import_module(f"experiments.{COMMANDS[arguments[0]]}").main(arguments[1:])
        )
    parser = make_parser()
    args = parser.parse_args(arguments)
    options = RunOptions(
        args.results, args.jobs, args.budget, args.data, args.device, args.threads
    )
    try:
        return _dispatch(args, options, parser)
    except CavityError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, BadOption) else 1
    except KeyboardInterrupt:
        print("interrupted: run the same command again to continue", file=sys.stderr)
        return 130


def _dispatch(
    args: argparse.Namespace, options: RunOptions, parser: argparse.ArgumentParser
) -> int:
    selection = Selection(
        tuple(args.sets),
        tuple(args.methods),
        tuple(args.inducing),
        args.splits,
        args.epochs,
    )
    if args.check or args.target == "check":
        return check_rows(options, selection, args.seed, args.seconds)
    if args.target is None:
        parser.error("name a target")
    if args.target == "page":
        from experiments import page

        return page.write_all(options.results)
    return run(args.target, selection, options, args.plan)


if __name__ == "__main__":
    sys.exit(main())
