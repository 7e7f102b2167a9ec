"""Rows of a table for a saved model, with their labels, weights and groups."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from cavity.cli.models import Model
from cavity.cli.predicting import read_chunks, report_notes
from cavity.cli.terminal import Terminal, Text
from cavity.common.text_tables import list_names
from cavity.errors import BadInput, BadOption
from cavity.tables.arrow_tables import Chunk, get_column, import_pyarrow
from cavity.tables.columns.cells import to_numbers
from cavity.tables.columns.encoder import suggest_column
from cavity.tables.columns.target_labels import convert_labels
from cavity.tables.files.arrow_source import read_group, read_weights
from cavity.tables.files.table_files import TableFile
from cavity.tables.validation import Prepared


class Roles(NamedTuple):
    """Columns that are not features."""

    target: Text = None
    weight: Text = None
    group: Text = None


class RowsOfChunk(NamedTuple):
    """Rows of a chunk that have a label and a weight."""

    chunk: Chunk
    places: Any  # row numbers in the chunk, from 0
    X: Any  # prepared
    y: Any  # numbers of classes, or targets; zeros without a target column
    weight: Any
    group: Any = None  # the same label for rows that belong together


class Sample(NamedTuple):
    X: Any  # raw rows, or prepared ones if the model has no preparation
    y: Any | None  # labels or targets
    numbers: Any  # row numbers in the file, from 1; None without a file
    total: int  # rows that the sample was drawn from


class Reservoir:
    """A random sample of at most `most` rows, in file order.

    A column is an array or an Arrow table.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.total = 0
        self._rng = np.random.default_rng(0)
        self._parts = list[tuple[Any, ...]]()

    def add(self, *columns: Any) -> None:
        n = len(columns[0])
        self.total += n
        self._parts.append((*columns, self._rng.random(n)))
        if sum(len(part[-1]) for part in self._parts) > 2 * self.most:
            self._parts = [self._thin()]

    @property
    def columns(self) -> tuple[Any, ...]:
        return self._thin()[:-1]

    def _thin(self) -> tuple[Any, ...]:
        """Join the parts, and keep the rows with the smallest random numbers."""
        columns = [_join(parts) for parts in zip(*self._parts, strict=True)]
        *_, draws = columns
        if len(draws) > self.most:
            chosen = np.sort(np.argpartition(draws, self.most)[: self.most])
            columns = [
                c[chosen] if isinstance(c, np.ndarray) else c.take(chosen)
                for c in columns
            ]

        return tuple(columns)


def _join(parts: tuple[Any, ...]) -> Any:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)

    return import_pyarrow().concat_tables(parts)


def check_column(file: TableFile, name: str | None, what: str) -> None:
    if name is not None and name not in file.names:
        hint = suggest_column(name, file.names)
        raise BadInput(f"{file.path} has no column {name!r} for the {what}; {hint}")


def find_roles(
    model: Model, file: TableFile, target: Text, weight: Text, group: Text
) -> Roles:
    """Return the columns that the flags name, or else the columns of the training.

    Weights and groups of the training are used only if the file has them.
    """
    target = target or model.target
    if target is None:
        raise BadOption(
            "the model does not store the name of its target column: give it with "
            "--target."
        )

    check_column(file, target, "labels: name it with --target")
    check_column(file, weight, "weights (--weight)")
    check_column(file, group, "groups (--group)")
    stored = partial(find_stored, model, file)
    return Roles(target, weight or stored("weight"), group or stored("group"))


def find_stored(model: Model, file: TableFile, role: str) -> Text:
    """Return the column that had this role in the training, if the file has it."""
    stored: Text = getattr(model.classifier, "notes_", {}).get(role)
    return stored if stored in file.names else None


def read_model_rows(
    model: Model, file: TableFile, roles: Roles, notes: Counter[str], terminal: Terminal
) -> Iterator[RowsOfChunk]:
    """Yield the rows with a label and a positive weight; without a target, all rows.

    `notes` counts odd cells; they are printed at the end.
    """
    target, weight, group = roles
    prepare = model.choose_preparation(file, target or model.target)
    unlabelled = total = 0
    for chunk in read_chunks(file, [*prepare.inputs, *filter(None, roles)], terminal):
        n = chunk.table.num_rows
        y = np.zeros(n)
        known = np.full(n, True)
        if target is not None:
            y, known = _read_truth(model, chunk, target)
        w = np.ones(n)
        if weight is not None:
            w = read_weights(chunk, weight)
        unlabelled += int((~known).sum())
        places = np.flatnonzero(known & (w > 0))
        total += len(places)
        if len(places):
            X = prepare.encode(chunk, notes)[places]
            g = None
            if group is not None:
                g = read_group(chunk, group)[places]
            yield RowsOfChunk(chunk, places, X, y[places], w[places], g)

    if not total:
        lacking = ""
        if unlabelled:
            lacking = " with a label"
        elif weight:
            lacking = " with a positive weight"

        raise BadInput(f"{file.path} has no rows{lacking}.")

    report_notes(notes, terminal, file, unlabelled)


def sample_rows(
    model: Model, file: TableFile, target: Text, most: int, terminal: Terminal
) -> Sample:
    """Sample at most `most` rows, or labelled rows if there is a target column."""
    kept = Reservoir(most)
    prepare = model.choose_preparation(file, target or model.target)
    for part in read_model_rows(model, file, Roles(target), Counter(), terminal):
        cells = part.chunk.table.select(prepare.inputs).take(part.places)
        kept.add(cells, part.y, part.chunk.first + part.places + 1)
    cells, y, numbers = kept.columns
    labels = None
    if target is not None:
        labels = y if model.classes is None else model.classes[y]
    return Sample(_as_rows(model, prepare, cells), labels, numbers, kept.total)


def select_rows(
    model: Model, file: TableFile, numbers: list[int], must: bool
) -> Sample:
    """Read rows by their numbers in the file, from 1.

    `must`: raise an error if the file lacks one of them.
    """
    prepare = model.choose_preparation(file, model.target)
    parts = []
    found = list[int]()
    for chunk in file.chunks(list(prepare.inputs)):
        first = chunk.first
        here = [n for n in numbers if first < n <= first + chunk.table.num_rows]
        parts.append(chunk.table.take(np.array(here, dtype=np.int64) - first - 1))
        found += here
        if len(found) == len(numbers):
            break

    absent = [n for n in numbers if n not in found]
    if not found or (must and absent):
        raise BadInput(f"{file.path} has no row {absent[0]}.")

    rows = _as_rows(model, prepare, _join(tuple(parts)))
    return Sample(rows, None, np.array(found), len(found))


def _as_rows(model: Model, prepare: Any, cells: Any) -> Any:
    if hasattr(model.classifier, "preparation_"):
        return cells

    return Prepared(prepare.encode(cells))


def _read_truth(model: Model, chunk: Chunk, target: str) -> tuple[Any, Any]:
    """Read the class numbers, or a regressor's targets, and which rows have a label."""
    cells = get_column(chunk.table, target)
    if model.classes is None:
        trained = model.prepare.target_
        style = trained.style if trained else None
        value, lacks = to_numbers(cells, target, chunk.first, style)
        return value, ~lacks

    names = {name: i for i, name in enumerate(model.labels)}
    places = {_normalise_label(name): i for name, i in names.items()} | names
    y = np.full(len(cells), -1)
    for row, label in enumerate(convert_labels(cells, target).to_pylist()):
        if label is None:
            continue

        place = places.get(label, places.get(_normalise_label(label)))
        if place is None:
            known = list_names(list(map(repr, names)))
            raise BadInput(
                f"row {chunk.first + row + 1} of {chunk.where} has the label "
                f"{label!r:.60}, which is not a class of the model ({known})."
            )

        y[row] = place

    return y, y >= 0


def _normalise_label(label: str) -> str:
    """Give equal labels one spelling: 2.0 and 2, True and true."""
    if label.lower() in ("true", "false"):
        return label.lower()

    return re.sub(r"\A([+-]?\d+)\.0*\Z", r"\1", label)
