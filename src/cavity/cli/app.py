"""The commands. What is heavy (torch, matplotlib) is imported inside them, so that --help answers at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
