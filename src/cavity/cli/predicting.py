"""`cavity predict`: apply a saved model to a file, in chunks of rows."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import chain
from pathlib import PurePath
from typing import Any

from cavity.cli.models import Extras, Predictor
from cavity.cli.outputs import check_out
from cavity.cli.terminal import Terminal, Text
from cavity.common.files import replacing
from cavity.errors import BadFile, BadInput, BadOption
from cavity.saving.model_file import read_result
from cavity.tables.arrow_tables import Chunk, get_column, import_pyarrow
from cavity.tables.columns.arrow_buffers import from_array
from cavity.tables.columns.cells import count_cells
from cavity.tables.columns.encoder import note_new_columns, suggest_column
from cavity.tables.files.table_files import TableFile, open_table


def predict(
    model: str,
    data: str,
    out: Text,
    keep: list[str] | None,
    device: Text,
    terminal: Terminal,
    *,
    interval: float | None = None,
    **more: bool,
) -> None:
    check_file_out(out, model, data, terminal)
    extras = Extras(**more, interval=interval)
    predictor = Predictor(read_result(model, device))
    file = open_table(data)
    if extras.uncertainty and predictor.classes is None:
        raise BadOption(
            "--uncertainty applies to classifiers only; for a regressor, see the "
            "column std."
        )

    if interval is not None:
        _check_interval(interval, predictor)

    def answer(X: Any) -> dict[str, Any]:
        return _name_columns(predictor, predictor.predict(X, extras))

    answer_rows(predictor, file, keep or [], out, terminal, answer=answer)


def answer_rows(
    predictor: Predictor,
    file: TableFile,
    keep: list[str],
    out: Text,
    terminal: Terminal,
    *,
    answer: Callable[[Any], dict[str, Any]],
) -> None:
    """Write what `answer` returns for the prepared rows of a file, as named columns."""
    prepare = predictor.choose_preparation(file, None)
    absent = next((name for name in keep if name not in file.names), None)
    if absent is not None:
        hint = suggest_column(absent, file.names)
        raise BadInput(f"--keep {absent!r}: {file.path} lacks it; {hint}")

    notes = Counter[str]()
    rows = 0
    arrow = import_pyarrow()

    def answer_chunks() -> Iterator[Any]:
        nonlocal rows
        for chunk in read_chunks(file, [*prepare.inputs, *keep], terminal):
            if not rows:
                predictor.expect_rows(chunk.table.num_rows)
            rows += chunk.table.num_rows
            found = answer(prepare.encode(chunk, notes))
            kept = {name: get_column(chunk.table, name) for name in keep}
            for name, values in found.items():
                while name in kept:
                    name = f"predicted {name}"
                kept[name] = from_array(values)

            yield arrow.table(kept)

        if not rows:
            raise BadInput(f"{file.path} has no rows.")

    write_tables(out, answer_chunks())
    note_new_columns(prepare, file.names, rows, notes)
    report_notes(notes, terminal, file)
    if out is not None:
        terminal.say(f"Wrote {rows} rows to {out}")
    terminal.print_result({"out": str(out), "rows": rows, "notes": dict(notes)})


def check_file_out(out: Text, model: str, data: str, terminal: Terminal) -> None:
    """Check --out; with --json, stdout is taken."""
    if out is not None:
        check_out(out, model, data, example="predictions.csv")
    elif terminal.as_json:
        raise BadOption(
            "--json also prints to stdout: write the predictions to a file with --out."
        )


def _check_interval(interval: float, predictor: Predictor) -> None:
    if predictor.classes is not None:
        raise BadOption(
            "--interval applies to regressors only; a classifier has a probability per "
            "class."
        )
    if not 0 < interval < 1:
        raise BadOption(
            f"--interval {interval:g} must be above 0 and below 1, such as 0.9."
        )


def _name_columns(predictor: Predictor, found: dict[str, Any]) -> dict[str, Any]:
    """Give the label and each class a column of its own."""
    P = found.pop("probabilities", None)
    classes = predictor.classes
    if P is None or classes is None:
        return found

    each = {f"p_{name}": P[:, i] for i, name in enumerate(predictor.labels)}
    return {"label": classes[P.argmax(1)], **each, **found}


def read_chunks(
    file: TableFile, columns: list[str], terminal: Terminal
) -> Iterator[Chunk]:
    return terminal.show_progress(file.chunks(list(dict.fromkeys(columns))), "rows")


def report_notes(
    notes: Counter[str], terminal: Terminal, file: TableFile, unlabelled: int = 0
) -> None:
    """Print how the file was read, and which cells differ from the training rows."""
    for remark in file.notes:
        terminal.note(remark)
    if unlabelled:
        terminal.note(f"{unlabelled} rows without a label are not used")
    for note, count in notes.items():
        terminal.note(f"{note} ({count_cells(count)})")


def write_tables(out: str | None, tables: Iterator[Any]) -> None:
    """Write the parts of a table to stdout (CSV) or to a file.

    The file is written under a temporary name, and becomes `out` at the end.
    """
    suffix = ".csv"
    if out is not None:
        suffix = PurePath(out).suffix.lower()
    writers = {
        ".csv": (".csv", "CSVWriter"),
        ".parquet": (".parquet", "ParquetWriter"),
        ".pq": (".parquet", "ParquetWriter"),
    }
    if suffix not in writers:
        raise BadOption(f"--out {out}: the name must end in .csv or .parquet.")

    module, name = writers[suffix]  # only one is imported: Parquet loads slowly
    make_writer = getattr(import_pyarrow(module), name)
    try:
        with nullcontext() if out is None else replacing(out) as part:
            first = next(tables)
            sink = sys.stdout.buffer if part is None else str(part)
            with make_writer(sink, first.schema) as writer:
                for table in chain([first], tables):
                    writer.write_table(table)
    except import_pyarrow().ArrowException as error:
        raise BadInput(
            f"{out or 'stdout'} cannot hold a column of --keep ({error}): omit the "
            f"column, or write a .parquet file."
        ) from error
    except BrokenPipeError:
        raise  # the reader of stdout has closed it
    except OSError as error:
        raise BadFile(
            f"{out or 'stdout'} could not be written ({error.strerror or error})."
        ) from error
