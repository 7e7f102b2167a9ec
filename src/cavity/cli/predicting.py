"""`cavity predict`: apply a saved model to a file, in chunks of rows."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any
from uuid import uuid4

from cavity.cli.models import Extras, Predictor
from cavity.cli.outputs import check_out
from cavity.cli.terminal import Terminal, Text
from cavity.common import object_stores
from cavity.common.object_stores import Location, as_path
from cavity.errors import BadFile, BadInput, BadOption
from cavity.rows.arrow_tables import Chunk, copy_columns, import_pyarrow
from cavity.rows.columns.arrow_buffers import from_array
from cavity.rows.columns.encoder import note_new_columns, suggest_column
from cavity.rows.files.table_files import TableFile, open_table
from cavity.saving.model_file import read_result


def predict(
    model: str,
    data: str,
    out: Text,
    keep: list[str] | None,
    uncertainty: bool,
    novelty: bool,
    device: Text,
    terminal: Terminal,
) -> None:
    if out is not None:
        check_out(out, model, data, example="predictions.csv")
    elif terminal.as_json:
        raise BadOption("--json also prints to stdout: write the predictions to a file with --out.")
    extras, keep = Extras(uncertainty, novelty), keep or []
    predictor, file = Predictor(read_result(model, device)), open_table(data)
    prepare = predictor.choose_preparation(file, None)
    absent = next((name for name in keep if name not in file.names), None)
    if absent is not None:
        raise BadInput(f"--keep {absent!r}: {file.path} lacks it; {suggest_column(absent, file.names)}")
    notes: Counter[str] = Counter()
    rows, arrow, types = 0, import_pyarrow(), file.types(keep)
    with open_writer(out) as write:
        for chunk in read_chunks(file, [*prepare.inputs, *keep], terminal):
            if not rows:
                predictor.expect_rows(chunk.table.num_rows)
            found = predictor.predict_columns(prepare.encode(chunk, notes), extras)
            kept = copy_columns(chunk.table, keep, types)
            for name, values in found.items():
                while name in kept:
                    name = f"predicted {name}"
                kept[name] = from_array(values)
            write(arrow.table(kept))
            rows += chunk.table.num_rows
        if not rows:
            raise BadInput(f"{file.path} has no rows.")
    note_new_columns(prepare, file.names, rows, notes)
    report_notes(notes, terminal, file)
    if out is not None:
        terminal.say(f"Wrote {rows} rows to {out}")
    terminal.print_result({"out": str(out), "rows": rows, "notes": dict(notes)})


def read_chunks(file: TableFile, columns: list[str], terminal: Terminal) -> Iterator[Chunk]:
    return terminal.show_progress(file.chunks(list(dict.fromkeys(columns))), "rows")


def report_notes(notes: Counter[str], terminal: Terminal, file: TableFile, unlabelled: int = 0) -> None:
    """Print how the file was read, and which cells differ from the training rows."""
    for remark in file.notes:
        terminal.note(remark)
    if unlabelled:
        terminal.note(f"{unlabelled} rows without a label are not used")
    for note, count in notes.items():
        terminal.note(f"{note} ({count} cells)")


@contextmanager
def open_writer(out: str | None) -> Iterator[Any]:
    """Give a function that appends a table to stdout (CSV) or to a temporary file, which becomes `out` at the end."""
    suffix = ".csv" if out is None else PurePath(object_stores.get_name(as_path(out))).suffix.lower()
    if suffix not in (".csv", ".parquet", ".pq"):
        raise BadOption(f"--out {out}: the name must end in .csv or .parquet.")
    temporary = None if out is None else _choose_temporary(as_path(out))
    writers: list[Any] = []

    def write(part: Any) -> None:
        try:
            if not writers:
                # one of them, since that of Parquet loads slowly
                module, name = ("csv", "CSVWriter") if suffix == ".csv" else ("parquet", "ParquetWriter")
                kind = getattr(import_module(f"pyarrow.{module}"), name)
                writers.append(kind(sys.stdout.buffer if temporary is None else str(temporary), part.schema))
            writers[0].write_table(part)
        except import_pyarrow().ArrowException as error:
            raise BadInput(
                f"{out or 'stdout'} cannot hold a column of --keep ({error}): leave it out, or write a .parquet file."
            ) from error

    try:
        yield write
        for writer in writers:
            writer.close()
        if temporary is not None and out is not None:
            _move_to(temporary, as_path(out))
    except BrokenPipeError:
        raise  # the reader of stdout has closed it
    except OSError as error:
        raise BadFile(f"{out or 'stdout'} could not be written ({error.strerror or error}).") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _choose_temporary(out: Location) -> Path:
    """Return a name for the unfinished file: next to the finished one, or on this machine if that is in a store."""
    if isinstance(out, Path):
        return out.with_name(f".{out.name}.{os.getpid()}.part")
    object_stores.check_bucket(out)
    return Path(tempfile.gettempdir()) / f"cavity-{uuid4().hex}.part"


def _move_to(file: Path, out: Location) -> None:
    if isinstance(out, Path):
        file.replace(out)
        return
    with file.open("rb") as content:
        object_stores.upload(content, out)
