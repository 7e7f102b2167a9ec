"""The commands. What is heavy (torch, matplotlib) is imported inside them, so that --help answers at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cavity._version import __version__

app = typer.Typer(
    help="Scalable multi-class Gaussian process classification by expectation propagation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


SEED = 7  # the toy's three classes are then of nearly equal size


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the table.")] = Path("demo-output"),
    seed: Annotated[int, typer.Option(min=0, help="Of the toy set, the splits and the fits.")] = SEED,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few seconds only: fewer rows, fewer epochs.")
    ] = False,
) -> None:
    """Train EP and SEP on two small sets, print a table, draw a picture: under two minutes on two cores."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        typer.echo(
            "The demo draws with matplotlib, which is not installed: pip install cavity[plot]", err=True
        )
        raise typer.Exit(1) from None
    typer.echo("==> Loading torch and scikit-learn")
    from cavity.report import demo as show

    show.run(out, seed, show.QUICK if quick else show.FULL, echo=typer.echo)


Sets = Annotated[list[str], typer.Option("--sets", help="Only this data set; may be repeated.")]
Methods = Annotated[list[str], typer.Option("--methods", help="Only this method; may be repeated.")]
Splits = Annotated[int | None, typer.Option(min=1, help="Fewer repetitions than the target has.")]
Jobs = Annotated[int, typer.Option(min=1, help="Processes, each of one thread.")]
Budget = Annotated[
    float | None, typer.Option(help="Seconds in all; fits that would not end in time are left out.")
]
Data = Annotated[
    str | None, typer.Option(help="Folder with the tables (default: $CAVITY_DATA, then OpenML).")
]
Device = Annotated[str, typer.Option(help="cpu, cuda or auto.")]
Results = Annotated[
    Path | None, typer.Option(help="Folder of the rows (default: benchmarks/results in a clone).")
]
Plan = Annotated[bool, typer.Option("--plan", help="Only say what is to do and how long it may take.")]


@app.command()
def reproduce(
    target: Annotated[
        str | None, typer.Argument(help="all, table2, table3, fig1, fig3 ... fig7; page.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compute three random rows again and compare.")
    ] = False,
    sets: Sets = [],  # noqa: B006
    methods: Methods = [],  # noqa: B006
    splits: Splits = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Fewer epochs; kept apart from the full rows.")
    ] = None,
    jobs: Jobs = 1,
    budget: Budget = None,
    data: Data = None,
    device: Device = "cpu",
    results: Results = None,
    plan: Plan = False,
) -> None:
    """Compute a table or figure of the papers again; what is finished is not fitted twice."""
    words = [] if target is None else [target]
    _experiments([*words, *(["--check"] if check else [])], locals())


@app.command()
def compare(
    sets: Sets = [],  # noqa: B006
    methods: Methods = [],  # noqa: B006
    splits: Splits = None,
    jobs: Jobs = 1,
    budget: Budget = None,
    data: Data = None,
    device: Device = "cpu",
    results: Results = None,
    plan: Plan = False,
) -> None:
    """Fit cavity beside other libraries on the same splits (extra: pip install cavity[bench])."""
    _experiments(["compare"], locals())


def _experiments(words: list[str], options: dict[str, Any]) -> None:
    """Hand over to the command that also runs without typer."""
    from cavity.experiments.commands import main as run

    for name in ("splits", "epochs", "jobs", "budget", "data", "device", "results"):
        if options.get(name) is not None:
            words += [f"--{name}", str(options[name])]
    for name in ("sets", "methods"):
        words += [f"--{name}", *options[name]] if options[name] else []
    raise typer.Exit(run([*words, *(["--plan"] if options["plan"] else [])]))
