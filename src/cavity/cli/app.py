"""The commands. What is heavy (torch, pyarrow, matplotlib) is imported inside them, so that --help answers at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cavity._version import __version__
from cavity.cli.terminal import EXIT_CODES, FAILED, Terminal, guarded
from cavity.errors import BadInput, BadOption

app = typer.Typer(
    help="Gaussian process classification of tables: train, predict, judge.",
    epilog=f"{EXIT_CODES} Example: cavity fit --help",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


SEED = 7  # of the demo: the toy's three classes are then of nearly equal size

Data = Annotated[Path, typer.Argument(metavar="DATA", show_default=False, hidden=True)]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", show_default=False, hidden=True)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:1.", metavar="NAME")]


def _there(*paths: Path | None) -> None:
    """Whether files exist, before torch takes its seconds to load."""
    for path in paths:
        if path is not None and not path.exists():
            raise BadInput(f"there is no file or folder {str(path)!r}.")


@app.command(epilog="Example: cavity version")
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


@app.command(
    short_help="Train on a table and save the model.",
    epilog="Example: cavity fit penguins.csv --target species --out penguins.cavity",
)
@guarded
def fit(
    data: Data,
    target: Annotated[str | None, typer.Option(help="The column of the labels.", metavar="COL")] = None,
    out: Annotated[Path | None, typer.Option(help="Where the model goes.", metavar="MODEL")] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="A column to leave out; repeat.", metavar="COL")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings, also batch_size, dtype; flags win.", metavar="TOML")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="auto, ep, sep, rep, pep, gfitc, vi, laplace.", metavar="NAME")
    ] = None,
    kernel: Annotated[str | None, typer.Option(help="Say, 'Matern52 + Linear'.", metavar="NAMES")] = None,
    n_inducing: Annotated[str | None, typer.Option(help="A class, or a share of rows.", metavar="N")] = None,
    batch_size: Annotated[str | None, typer.Option(metavar="N", hidden=True)] = None,
    max_epochs: Annotated[int | None, typer.Option(help="Passes over the rows.", metavar="N")] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Of training.", metavar="S")] = None,
    validation_fraction: Annotated[
        float | None, typer.Option(help="Rows to stop early by.", metavar="SHARE")
    ] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Where to keep the run.", metavar="FILE")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the checkpoint, if any.")] = False,
    device: Device = None,
    dtype: Annotated[str | None, typer.Option(metavar="NAME", hidden=True)] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random, usually 0.", metavar="N")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train on DATA (.csv, .parquet, .arrow, .npz or a folder) and save the model."""
    _there(data)
    from cavity.cli import settings

    flags = {
        "target": target,
        "out": out,
        "ignore": ignore,
        "method": method,
        "kernel": kernel,
        "n_inducing": n_inducing,
        "batch_size": batch_size,
        "max_epochs": max_epochs,
        "max_seconds": max_seconds,
        "validation_fraction": validation_fraction,
        "checkpoint": checkpoint,
        "resume": resume or None,
        "device": device,
        "dtype": dtype,
        "seed": seed,
    }
    chosen = settings.read(flags, config)
    from cavity.cli import fitting

    fitting.run(data, chosen, Terminal(as_json, quiet))


@app.command(
    short_help="Predict the rows of a table with a saved model.",
    epilog="Example: cavity predict penguins.cavity new.csv --out predicted.csv",
)
@guarded
def predict(
    model: ModelFile,
    data: Data,
    out: Annotated[
        Path | None, typer.Option(help=".csv or .parquet; without it, CSV on stdout.", metavar="FILE")
    ] = None,
    keep: Annotated[list[str] | None, typer.Option(help="A column to copy; repeat.", metavar="COL")] = None,
    uncertainty: Annotated[
        bool, typer.Option("--uncertainty", help="Add total, aleatoric, epistemic entropy.")
    ] = False,
    device: Device = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict the rows of DATA: the label, and a probability for each class."""
    _there(model, data)
    if as_json and out is None:
        raise BadOption("--json prints to stdout, and so would the predictions: give them a file, --out.")
    from cavity.cli import predicting

    terminal = Terminal(as_json, quiet)
    predicting.predict(model, data, out, keep or [], uncertainty, device, terminal)


@app.command(
    short_help="Compare predictions with known labels.",
    epilog="Example: cavity evaluate penguins.cavity test.csv",
)
@guarded
def evaluate(
    model: ModelFile,
    data: Data,
    target: Annotated[str | None, typer.Option(help="The labels, if named otherwise.", metavar="COL")] = None,
    device: Device = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare predictions with the labels in DATA: error, NLL, ECE, confusion."""
    _there(model, data)
    from cavity.cli import predicting

    predicting.evaluate(model, data, target, device, Terminal(as_json, quiet))


@app.command(
    short_help="Write a page about a model, and about rows.",
    epilog="Example: cavity report penguins.cavity test.csv --out report.html",
)
@guarded
def report(
    model: ModelFile,
    data: Annotated[Path | None, typer.Argument(metavar="DATA", show_default=False, hidden=True)] = None,
    out: Annotated[Path, typer.Option(help="The page.", metavar="FILE")] = Path("report.html"),
    target: Annotated[str | None, typer.Option(help="The labels, if named otherwise.", metavar="COL")] = None,
    rows: Annotated[int, typer.Option(min=1, help="At most so many, drawn at random.", metavar="N")] = 2000,
    device: Device = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a self-contained HTML page about MODEL and, if given, about the rows of DATA."""
    _there(model, data)
    from cavity.cli import reporting

    reporting.report(model, data, out, target, rows, device, Terminal(as_json, quiet))


@app.command(
    short_help="Write a model as an ONNX graph.",
    epilog="Example: cavity export penguins.cavity --onnx penguins.onnx",
)
@guarded
def export(
    model: ModelFile,
    onnx: Annotated[Path | None, typer.Option(help="The graph.", metavar="FILE")] = None,
    dtype: Annotated[str, typer.Option(help="Of the input: float64 or float32.", metavar="NAME")] = "float64",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write MODEL as an ONNX graph: probabilities and labels, the quadrature inside it."""
    _there(model)
    from cavity.cli import reporting

    reporting.export(model, onnx, dtype, Terminal(as_json, quiet))


@app.command(
    short_help="Answer predictions over HTTP.",
    epilog="Example: cavity serve penguins.cavity --port 8000",
)
@guarded
def serve(
    model: ModelFile,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.", metavar="N")] = 8000,
    host: Annotated[str, typer.Option(help="The address to listen at.", metavar="NAME")] = "127.0.0.1",
    most_rows: Annotated[int, typer.Option(min=1, help="Of a request.", metavar="N")] = 10_000,
    most_bytes: Annotated[int, typer.Option(min=1, help="Of a request.", metavar="N")] = 16 << 20,
    device: Device = None,
) -> None:
    """Answer predictions of MODEL over HTTP: /predict, /schema, /health, /docs."""
    _there(model)
    from cavity.cli import serving

    serving.run(model, host, port, serving.Limits(most_rows, most_bytes), device)


@app.command(short_help="Show what a model is.", epilog="Example: cavity info penguins.cavity")
@guarded
def info(model: ModelFile, as_json: Json = False) -> None:
    """Show what MODEL is: method, classes, columns and how they are prepared."""
    _there(model)
    from cavity.cli import describing

    describing.info(model, Terminal(as_json))


@app.command(
    short_help="Train on two small sets and draw a picture.",
    epilog="Example: cavity demo --quick --out demo-output",
)
@guarded
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
        raise typer.Exit(FAILED) from None
    typer.echo("==> Loading torch and scikit-learn")
    from cavity.report import demo as show

    show.run(out, seed, show.QUICK if quick else show.FULL, echo=typer.echo)
