"""Commands.

They import torch and pyarrow only when they run, so that --help is fast.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from cavity.cli.stdin import spooled
from cavity.cli.terminal import Terminal, Text, handle_errors
from cavity.common.files import is_uri
from cavity.common.version import __version__
from cavity.errors import BadInput

app = typer.Typer(
    epilog="Exit codes: 0 success, 1 failure, 2 wrong usage. Example: cavity fit --help",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _option(about: str, metavar: str, **more: Any) -> Any:
    return Option(help=about, metavar=metavar, **more)


def _flag(name: str, about: str) -> Any:
    return Option(f"--{name}", help=about)


Texts = list[str] | None
HIDDEN = Option(hidden=True)  # described in docs/cli.md
MOST_BYTES = 2 << 20
Data = Annotated[str, Argument(metavar="DATA", show_default=False, hidden=True)]
ModelFile = Annotated[str, Argument(metavar="MODEL", show_default=False, hidden=True)]
AS_TRAINED = "(default: as in training)."
Target = Annotated[Text, _option(f"Column of the labels {AS_TRAINED}", "COL")]
Weight = Annotated[Text, _option(f"Column of the weights {AS_TRAINED}", "COL")]
Group = Annotated[
    Text,
    _option(f"Column of groups, each counted once in intervals {AS_TRAINED}", "COL"),
]
Labels = Annotated[Text, _option("Column of the labels.", "COL")]
Ignore = Annotated[Texts, _option("Column to ignore; may be repeated.", "COL")]
Effort = Annotated[Text, _option("fast or balanced.", "NAME")]
Seed = Annotated[int | None, _option("Random seed (default 0).", "N")]
Keep = Annotated[Texts, _option("Column of DATA to copy; may be repeated.", "COL")]
TableOut = Annotated[
    Text, _option(".csv or .parquet file (default: CSV on stdout).", "FILE")
]
COSTS_FILE = "File with the costs of decisions (see docs)."
CostsFile = Annotated[Text, _option(COSTS_FILE, "TOML")]
Json = Annotated[bool, _flag("json", "Print one JSON object instead of text.")]
Quiet = Annotated[bool, _flag("quiet", "Print only errors.")]
Device = Annotated[Text, _option("Device: auto, cpu, cuda or cuda:1.", "NAME")]


def _share(device: Device = None, as_json: Json = False, quiet: Quiet = False) -> None:
    """Declare the last options of most commands."""


def _command(
    about: str,
    example: str = "",
    module: str = "",
    shared: tuple[str, ...] = ("device", "as_json", "quiet"),
) -> Callable[[Callable[..., None]], Any]:
    """Add a command to the program, with a line for the list of commands (decorator).

    With a module, the decorated function only declares options, and the function of the
    same name in that module does the work. The module is imported when the command
    runs. The function gets the options by their names, and a terminal in place of
    --json and --quiet.
    """

    def add(declared: Callable[..., None]) -> Any:
        @functools.wraps(declared)
        def run(**given: Any) -> None:
            with spooled(given) as arguments:
                _check_files(arguments)
                work = declared
                if module:
                    part = import_module(f"cavity.cli.{module}")
                    work = getattr(part, declared.__name__)
                    as_json = arguments.pop("as_json", False)
                    quiet = arguments.pop("quiet", False)
                    arguments["terminal"] = Terminal(as_json, quiet)

                work(**arguments)

        own = inspect.signature(declared, eval_str=True)
        last = inspect.signature(_share, eval_str=True).parameters
        options = [*own.parameters.values(), *(last[name] for name in shared)]
        run.__signature__ = own.replace(parameters=options)  # type: ignore[attr-defined]
        epilog = f"Example: cavity {example}" if example else None
        return app.command(short_help=about, epilog=epilog)(handle_errors(run))

    return add


def _check_files(given: dict[str, Any]) -> None:
    """Check that files exist, and that models are not tables.

    This comes before torch is loaded, which takes seconds. Stores answer later.
    """
    for name in ("model", "other", "data", "background", "costs"):
        path = given.get(name)
        if path is None or is_uri(path):
            continue
        if not path or not Path(path).exists():
            raise BadInput(f"file or folder {path!r} does not exist.")
        if name in ("model", "other") and _is_table(Path(path)):
            hint = "."
            if given.get("data") is not None:
                hint = ": did you swap the arguments?"
            raise BadInput(f"{path} is a table, not a model{hint}")


def _is_table(path: Path) -> bool:
    """Whether a file has the suffix of a table, and is not a model all the same."""
    suffix = path.suffix.lower()
    if suffix in ("", ".cavity") or not path.is_file():
        return False

    from cavity.tables.files.table_files import FILE_KINDS

    with path.open("rb") as file:
        start = file.read(9)
    is_model = start[8:] == b"{"  # safetensors: eight bytes of length, then JSON
    return suffix in FILE_KINDS and not is_model


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"cavity {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print name and version.",
        ),
    ] = False,
) -> None:
    """Class probabilities that you can act on, for tables: train, predict, evaluate."""


@_command("Train on a table and save the model.", shared=())
def fit(
    ctx: typer.Context,
    data: Data,
    target: Labels = None,
    out: Annotated[
        Text, _option("Model file (default: named after DATA).", "MODEL")
    ] = None,
    ignore: Ignore = None,
    group: Annotated[Text, HIDDEN] = None,
    regression: Annotated[
        bool,
        _flag(
            "regression", "Predict a number (default if the target has many values)."
        ),
    ] = False,
    config: Annotated[
        Path | None, _option("File of settings; flags override it.", "TOML")
    ] = None,
    method: Annotated[
        Text, _option("auto, ep, sep, rep, pep, gfitc, vi or laplace.", "NAME")
    ] = None,
    effort: Effort = None,
    kernel: Annotated[
        Text, _option("Kernels joined with + and *: 'RBF + Linear'.", "NAMES")
    ] = None,
    order: Annotated[
        Text, _option("Ordered classes, lowest first: low,mid,high.", "LABELS")
    ] = None,
    n_inducing: Annotated[
        Text, _option("Inducing points per class, or a fraction of rows.", "N")
    ] = None,
    batch_size: Annotated[Text, HIDDEN] = None,
    max_epochs: Annotated[int | None, HIDDEN] = None,
    time_limit: Annotated[
        float | None, _option("Seconds for the whole fit.", "S")
    ] = None,
    max_seconds: Annotated[float | None, HIDDEN] = None,
    validation_fraction: Annotated[float | None, HIDDEN] = None,
    checkpoint: Annotated[Text, _option("File to save checkpoints to.", "FILE")] = None,
    resume: Annotated[
        bool, _flag("resume", "Continue from the checkpoint, if it exists.")
    ] = False,
    dtype: Annotated[Text, HIDDEN] = None,
    seed: Seed = None,
    strict: Annotated[
        bool, _flag("strict", "Refuse cells that need a guess (see docs).")
    ] = False,
    device: Device = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train on DATA, save a model. Example: cavity fit birds.csv --target species"""
    from cavity.cli import settings

    others = ("data", "config", "as_json", "quiet")
    flags = {name: value for name, value in ctx.params.items() if name not in others}
    chosen = settings.read(flags, config, data)  # before torch: errors come at once
    from cavity.cli import fitting

    fitting.run(data, chosen, Terminal(as_json, quiet))


@_command(
    "Predict the rows of a table with a saved model.",
    "predict penguins.cavity new.csv --out predicted.csv",
    "predicting",
)
def predict(
    model: ModelFile,
    data: Data,
    out: TableOut = None,
    keep: Keep = None,
    uncertainty: Annotated[
        bool, _flag("uncertainty", "Add total, aleatoric and epistemic entropy.")
    ] = False,
    novelty: Annotated[
        bool, _flag("novelty", "Add how unlike the training rows each row is, 0 to 1.")
    ] = False,
    interval: Annotated[
        float | None, _option("Share of new values inside low to high.", "SHARE")
    ] = None,
) -> None:
    """Predict the rows of DATA.

    A classifier writes the label and one probability per class, a regressor mean, std
    and a 95% interval.
    """


@_command(
    "Decide about the rows of a table by what errors cost.",
    "decide loans.cavity new.csv --costs costs.toml --out decided.csv",
    "deciding",
)
def decide(
    model: ModelFile,
    data: Data,
    costs: Annotated[str, _option(COSTS_FILE, "TOML")],
    out: TableOut = None,
    keep: Keep = None,
) -> None:
    """Write the action of least expected cost for each row of DATA.

    Beside it are its expected cost, and its margin over the second cheapest action.
    """


@_command(
    "Score predictions on a table with labels.",
    "evaluate penguins.cavity test.csv",
    "evaluating",
)
def evaluate(
    model: ModelFile,
    data: Data,
    target: Target = None,
    weight: Weight = None,
    group: Group = None,
    costs: CostsFile = None,
) -> None:
    """Score predictions on the labelled rows of DATA.

    Scores are overall, per class and against a baseline, with 95% intervals.
    """


@_command(
    "Check whether the rows of a table have changed.",
    "drift penguins.cavity new.csv",
    "drifting",
)
def drift(
    model: ModelFile,
    data: Data,
    level: Annotated[
        float,
        _option("Probability of an alarm without drift.", "SHARE", min=1e-9, max=0.5),
    ] = 0.05,
) -> None:
    """Compare the rows of DATA with the training rows, column by column.

    The exit code is 1 if a column has changed. No labels are needed.
    """


@_command(
    "Compare two models on rows with labels.",
    "compare old.cavity new.cavity test.csv",
    "comparing",
)
def compare(
    model: ModelFile,
    other: Annotated[str, Argument(metavar="OTHER", show_default=False, hidden=True)],
    data: Data,
    target: Target = None,
    weight: Weight = None,
    group: Group = None,
) -> None:
    """Compare two classifiers, MODEL and OTHER, on the labelled rows of DATA.

    The verdict says whether the difference may be noise.
    """


@_command(
    "Explain the predictions of single rows.",
    "explain penguins.cavity new.csv --row 3",
    "explaining",
)
def explain(
    model: ModelFile,
    data: Data,
    row: Annotated[
        list[int] | None,
        _option(
            "Row number, from 1; may be repeated (default: the first 5).",
            "N",
            min=1,
        ),
    ] = None,
    background: Annotated[
        Text, _option("Table to compare the rows with (default: DATA).", "DATA")
    ] = None,
) -> None:
    """Show how each cell moves the prediction of its row.

    Cells are compared with the cells of 50 other rows.
    """


@_command(
    "List rows of a table whose label is improbable.",
    "suspects birds.csv --target species --out suspects.csv",
    "suspecting",
)
def suspects(
    data: Data,
    target: Labels = None,
    ignore: Ignore = None,
    weight: Annotated[Text, _option("Column of the weights.", "COL")] = None,
    group: Annotated[
        Text, _option("Column of groups, whose rows stay together.", "COL")
    ] = None,
    rows: Annotated[int, _option("Print at most this many rows.", "N", min=1)] = 20,
    folds: Annotated[int, _option("Parts of the rows to predict.", "N", min=2)] = 5,
    effort: Effort = None,
    seed: Seed = None,
    out: Annotated[Text, _option(".csv file for all rows.", "FILE")] = None,
) -> None:
    """List the rows of DATA by the probability of their label, the smallest first.

    A classifier is fitted to DATA; models that did not see a row predict it.
    """


@_command(
    "Write an HTML report on a model.",
    "report penguins.cavity test.csv --out report.html",
    "reporting",
)
def report(
    model: ModelFile,
    data: Annotated[
        Text, Argument(metavar="DATA", show_default=False, hidden=True)
    ] = None,
    out: Annotated[str, _option("HTML file to write.", "FILE")] = "report.html",
    target: Target = None,
    rows: Annotated[int, _option("Sample at most this many rows.", "N", min=1)] = 2000,
    costs: CostsFile = None,
    positive: Annotated[
        Text, _option("Class that curves show (default: the rarer of two).", "LABEL")
    ] = None,
) -> None:
    """Write a self-contained HTML report on MODEL, and on the rows of DATA if given."""


@_command(
    "Write a model as an ONNX graph.",
    "export penguins.cavity --onnx penguins.onnx",
    "exporting",
    ("as_json", "quiet"),
)
def export(
    model: ModelFile,
    onnx: Annotated[Text, _option("ONNX file to write.", "FILE")] = None,
    dtype: Annotated[
        str, _option("Type of the input: float64 or float32.", "NAME")
    ] = "float64",
    novelty: Annotated[bool, _flag("novelty", "Add the output novelty.")] = False,
) -> None:
    """Write MODEL as an ONNX graph that takes raw columns and computes predictions."""


@_command(
    "Serve predictions over HTTP.",
    "serve penguins.cavity --port 8000",
    "serving.server",
    ("device",),
)
def serve(
    model: ModelFile,
    port: Annotated[
        int, _option("Port; 0 for any free port.", "N", min=0, max=65535)
    ] = 8000,
    host: Annotated[str, _option("Address to listen on.", "NAME")] = "127.0.0.1",
    allowed_host: Annotated[
        Texts, _option("Additional host name to answer; may be repeated.", "NAME")
    ] = None,
    health_port: Annotated[
        int | None, _option("Separate port for /health.", "N", min=1, max=65535)
    ] = None,
    workers: Annotated[
        int, _option("Processes, each with its own copy of the model.", "N", min=1)
    ] = 1,
    most_rows: Annotated[
        int, _option("Maximum rows per request.", "N", min=1)
    ] = 10_000,
    most_bytes: Annotated[
        int, _option("Maximum bytes per request.", "N", min=1)
    ] = MOST_BYTES,
    most_waiting: Annotated[
        int, _option("Maximum rows in the queue.", "N", min=1)
    ] = 50_000,
    read_seconds: Annotated[
        float, _option("Seconds for a client to send a body.", "S", min=0.1)
    ] = 30.0,
    stop_seconds: Annotated[
        int, _option("Seconds to finish requests when stopped.", "S", min=1)
    ] = 10,
    costs: CostsFile = None,
) -> None:
    """Serve MODEL over HTTP: a page at /, /predict for programs, and /schema,
    /health and /metrics. CAVITY_TOKEN sets a token.
    """


@_command("Describe a model.", "info penguins.cavity", "describing", ("as_json",))
def info(model: ModelFile) -> None:
    """Describe MODEL: method, classes, columns and their preparation."""
