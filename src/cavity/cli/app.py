"""Commands. They import torch, pyarrow and matplotlib only when they run, so that --help is fast."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import Annotated

import typer

from cavity._version import __version__
from cavity.cli.terminal import EXIT_CODES, Terminal, handle_errors
from cavity.common.object_stores import is_uri
from cavity.errors import BadInput, BadOption, missing_extra

app = typer.Typer(
    epilog=f"{EXIT_CODES} Example: cavity fit --help",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq", ".arrow", ".feather", ".ipc", ".npz")
SEED = 7  # for the demo: the three classes of the toy set then have nearly equal size

Data = Annotated[str, typer.Argument(metavar="DATA", show_default=False, hidden=True)]
ModelFile = Annotated[str, typer.Argument(metavar="MODEL", show_default=False, hidden=True)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only errors.")]
Device = Annotated[str | None, typer.Option(help="Device: auto, cpu, cuda or cuda:1.", metavar="NAME")]


def _check_exist(*paths: str | None) -> None:
    """Check that files exist before loading torch, which takes seconds; stores answer later."""
    for path in paths:
        if path is not None and not is_uri(path) and not Path(path).exists():
            raise BadInput(f"file or folder {path!r} does not exist.")


def _check_model(model: str, data: str | None = None) -> None:
    """Check that the files exist and that the model is not a table; `data` is the table."""
    _check_exist(model, data)
    if PurePath(model).suffix.lower() in TABLES and not is_uri(model) and Path(model).is_file():
        with Path(model).open("rb") as file:
            is_model = file.read(9)[8:] == b"{"  # JSON after its length, as in every safetensors file
        if not is_model:
            swapped = "." if data is None else ": did you swap the arguments?"
            raise BadInput(f"{model} is a table, not a model{swapped}")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"cavity {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print name and version."),
    ] = False,
) -> None:
    """Gaussian process classification and regression of tables: train, predict, evaluate."""


@app.command(epilog="Example: cavity version")
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


@app.command(
    short_help="Train on a table and save the model.",
    epilog="Example: cavity fit penguins.csv --target species --out penguins.cavity",
)
@handle_errors
def fit(
    data: Data,
    target: Annotated[str | None, typer.Option(help="Column of the labels.", metavar="COL")] = None,
    out: Annotated[
        str | None, typer.Option(help="Model file (default: DATA with .cavity, here).", metavar="MODEL")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="Column to ignore; may be repeated.", metavar="COL")
    ] = None,
    regression: Annotated[
        bool, typer.Option("--regression", help="Predict a number (default: if the target has many).")
    ] = False,
    config: Annotated[
        Path | None, typer.Option(help="File of settings; flags override it.", metavar="TOML")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="auto, ep, sep, rep, pep, gfitc, vi or laplace.", metavar="NAME")
    ] = None,
    effort: Annotated[str | None, typer.Option(help="fast, balanced or best.", metavar="NAME")] = None,
    kernel: Annotated[
        str | None, typer.Option(help="Kernel, e.g. 'Matern52 + Linear'.", metavar="NAMES", hidden=True)
    ] = None,
    n_inducing: Annotated[
        str | None, typer.Option(help="Inducing points per class, or a fraction of rows.", metavar="N")
    ] = None,
    batch_size: Annotated[str | None, typer.Option(metavar="N", hidden=True)] = None,
    max_epochs: Annotated[
        int | None, typer.Option(help="Maximum number of epochs.", metavar="N", hidden=True)
    ] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds for the whole fit.", metavar="S")] = None,
    max_seconds: Annotated[
        float | None, typer.Option(help="Maximum training time in seconds.", metavar="S", hidden=True)
    ] = None,
    validation_fraction: Annotated[
        float | None, typer.Option(help="Fraction of rows for early stopping.", metavar="F", hidden=True)
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="File to save checkpoints to.", metavar="FILE")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the checkpoint, if it exists.")
    ] = False,
    device: Device = None,
    dtype: Annotated[str | None, typer.Option(metavar="NAME", hidden=True)] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed (default 0).", metavar="N")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse cells that need a guess (see docs).")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train on DATA (.csv, .parquet, .npz, a folder, a URI) and save the model."""
    _check_exist(data)
    from cavity.cli import settings

    flags = {
        "target": target,
        "out": out,
        "ignore": ignore,
        "method": method,
        "effort": effort,
        "kernel": kernel,
        "n_inducing": n_inducing,
        "batch_size": batch_size,
        "max_epochs": max_epochs,
        "time_limit": time_limit,
        "max_seconds": max_seconds,
        "validation_fraction": validation_fraction,
        "checkpoint": checkpoint,
        "resume": resume or None,
        "device": device,
        "dtype": dtype,
        "seed": seed,
        "strict": strict or None,
        "regression": regression or None,
    }
    chosen = settings.read(flags, config, data)
    from cavity.cli import fitting

    fitting.run(data, chosen, Terminal(as_json, quiet))


@app.command(
    short_help="Predict the rows of a table with a saved model.",
    epilog="Example: cavity predict penguins.cavity new.csv --out predicted.csv",
)
@handle_errors
def predict(
    model: ModelFile,
    data: Data,
    out: Annotated[
        str | None, typer.Option(help=".csv or .parquet file (default: CSV on stdout).", metavar="FILE")
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="Column of DATA to copy; may be repeated.", metavar="COL")
    ] = None,
    uncertainty: Annotated[
        bool, typer.Option("--uncertainty", help="Add total, aleatoric and epistemic entropy.")
    ] = False,
    device: Device = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict the rows of DATA: the label and one probability per class, or mean, std and a 95 % interval."""
    _check_model(model, data)
    if as_json and out is None:
        raise BadOption(
            "--json and the predictions would both go to stdout: write the predictions to a file with --out."
        )
    from cavity.cli import predicting

    terminal = Terminal(as_json, quiet)
    predicting.predict(model, data, out, keep or [], uncertainty, device, terminal)


@app.command(
    short_help="Score predictions on a table with labels.",
    epilog="Example: cavity evaluate penguins.cavity test.csv",
)
@handle_errors
def evaluate(
    model: ModelFile,
    data: Data,
    target: Annotated[
        str | None, typer.Option(help="Column of the labels (default: as in training).", metavar="COL")
    ] = None,
    weight: Annotated[
        str | None, typer.Option(help="Column of the weights (default: as in training).", metavar="COL")
    ] = None,
    importance: Annotated[
        bool, typer.Option("--importance", help="Add which columns matter (of at most 2,000 rows).")
    ] = False,
    device: Device = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score predictions on DATA, which has labels: overall, per class and against a baseline, with 95 % intervals."""
    _check_model(model, data)
    from cavity.cli import evaluating

    evaluating.evaluate(model, data, target, weight, importance, device, Terminal(as_json, quiet))


@app.command(
    short_help="Write an HTML report on a model.",
    epilog="Example: cavity report penguins.cavity test.csv --out report.html",
)
@handle_errors
def report(
    model: ModelFile,
    data: Annotated[str | None, typer.Argument(metavar="DATA", show_default=False, hidden=True)] = None,
    out: Annotated[str, typer.Option(help="HTML file to write.", metavar="FILE")] = "report.html",
    target: Annotated[
        str | None, typer.Option(help="Column of the labels (default: as in training).", metavar="COL")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Sample at most this many rows.", metavar="N")] = 2000,
    device: Device = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a self-contained HTML report on MODEL and, if given, on the rows of DATA."""
    _check_model(model, data)
    from cavity.cli import reporting

    reporting.report(model, data, out, target, rows, device, Terminal(as_json, quiet))


@app.command(
    short_help="Write a model as an ONNX graph.",
    epilog="Example: cavity export penguins.cavity --onnx penguins.onnx",
)
@handle_errors
def export(
    model: ModelFile,
    onnx: Annotated[str | None, typer.Option(help="ONNX file to write.", metavar="FILE")] = None,
    dtype: Annotated[
        str, typer.Option(help="Type of the input: float64 or float32.", metavar="NAME")
    ] = "float64",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write MODEL as an ONNX graph that takes raw columns and computes predictions."""
    _check_model(model)
    from cavity.cli import exporting

    exporting.export(model, onnx, dtype, Terminal(as_json, quiet))


@app.command(
    short_help="Serve predictions over HTTP.",
    epilog="Example: cavity serve penguins.cavity --port 8000",
)
@handle_errors
def serve(
    model: ModelFile,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port; 0 for any free port.", metavar="N")
    ] = 8000,
    host: Annotated[str, typer.Option(help="Address to listen on.", metavar="NAME")] = "127.0.0.1",
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="Further host name that requests may use; may be repeated.", metavar="NAME"),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Processes, each with its own copy of the model.", metavar="N")
    ] = 1,
    most_rows: Annotated[int, typer.Option(min=1, help="Maximum rows per request.", metavar="N")] = 10_000,
    most_bytes: Annotated[int, typer.Option(min=1, help="Maximum bytes per request.", metavar="N")] = 2 << 20,
    most_waiting: Annotated[
        int, typer.Option(min=1, help="Maximum rows in the queue.", metavar="N")
    ] = 50_000,
    read_seconds: Annotated[
        float, typer.Option(min=0.1, help="Seconds for a client to send its request.", metavar="S")
    ] = 30.0,
    stop_seconds: Annotated[
        int, typer.Option(min=1, help="Seconds to finish requests when stopped.", metavar="S")
    ] = 10,
    device: Device = None,
) -> None:
    """Serve MODEL over HTTP: a page to try it at /, and /predict, /schema, /health, /metrics, /docs. CAVITY_TOKEN sets a token."""
    _check_model(model)
    for package in ("fastapi", "uvicorn", "prometheus_client"):
        if find_spec(package) is None:
            raise missing_extra(package, "serve")
    from cavity.cli.serving import server
    from cavity.cli.serving.settings import Deadlines, Limits

    server.run(
        model,
        host,
        port,
        allowed_hosts=allowed_host or [],
        limits=Limits(most_rows, most_bytes, most_waiting),
        deadlines=Deadlines(read_seconds, stop_seconds),
        workers=workers,
        device=device,
    )


@app.command(short_help="Describe a model.", epilog="Example: cavity info penguins.cavity")
@handle_errors
def info(model: ModelFile, as_json: Json = False) -> None:
    """Describe MODEL: method, classes, columns and their preparation."""
    _check_model(model)
    from cavity.cli import describing

    describing.print_info(model, Terminal(as_json))


@app.command(
    short_help="Train on two small data sets and draw a figure.",
    epilog="Example: cavity demo --quick --out demo-output",
)
@handle_errors
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure and the table.")] = Path("demo-output"),
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = SEED,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run for a few seconds: fewer rows and epochs.")
    ] = False,
) -> None:
    """Train EP and SEP on two small data sets, print a table and draw a figure (under two minutes on two cores)."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise missing_extra("matplotlib", "plot") from None
    typer.echo("==> Loading torch and scikit-learn")
    from cavity.report import demo

    demo.run(out, seed, demo.QUICK if quick else demo.FULL, echo=typer.echo)
