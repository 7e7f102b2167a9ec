"""Read the rows of requests as features of the served model."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from pydantic_core import from_json

from cavity.cli.models import Model
from cavity.common.text_tables import format_label
from cavity.errors import BadInput
from cavity.tables.columns.column_kinds import Number, Unchanged
from cavity.tables.columns.encoder import suggest_column

MOST_ERRORS = 20  # reported per request
KINDS = {
    dict: "an object",
    list: "a list",
    str: "text",
    bool: "a boolean",
    type(None): "null",
}


class CellError(NamedTuple):
    """A cell or a row that cannot be used."""

    row: int  # in the request, from 1
    column: str | None  # None if the whole row is wrong
    message: str


class BadRows(BadInput):
    """Some rows of a request cannot be used; `errors` names rows and columns."""

    def __init__(self, errors: list[CellError]) -> None:
        self.errors = errors
        first = errors[0]
        place = f"row {first.row}"
        if first.column is not None:
            place += f", column {first.column!r}"
        more = ""
        if len(errors) > 1:
            more = f" (and {len(errors) - 1} more errors)"
        super().__init__(f"{place}: {first.message}{more}")


class RowReader:
    """Reader of the rows of requests for one model.

    Rows are objects by column name. They may be lists of numbers if the model has no
    names, or only numeric columns.
    """

    def __init__(self, model: Model, most_rows: int) -> None:
        self.prepare = model.prepare
        self.most_rows = most_rows
        self._has_names = model.has_names
        self.names = list(self.prepare.inputs)
        self._takes_lists = self.prepare.inputs == self.prepare.names
        self._is_number = {
            c.name: isinstance(c, Number | Unchanged) for c in self.prepare.columns_
        }

    def read(self, body: bytes, notes: Counter[str]) -> Any:
        """Read a request: features, [n D].

        Raises BadInput; BadRows if the error has a place.
        """
        rows = list[list[Any]]()
        errors = list[CellError]()
        for number, row in enumerate(parse_rows(body, self.most_rows), 1):
            cells, wrong = self._read_row(row)
            rows.append(cells)
            errors += [CellError(number, name, text) for name, text in wrong.items()]
            if len(errors) >= MOST_ERRORS:
                break

        if errors:
            raise BadRows(errors[:MOST_ERRORS])

        X = self._encode(rows, notes)
        self._check_finite(X)
        return X

    def _read_row(self, row: Any) -> tuple[list[Any], dict[str | None, str]]:
        """Return the cells of a row in column order, and what is wrong, by column."""
        is_list = isinstance(row, list) and self._takes_lists
        listed = is_list and len(row) == len(self.names)
        if listed:
            row = dict(zip(self.names, row, strict=True))
        elif not isinstance(row, dict) or not self._has_names:
            return [], {None: self._describe_row()}

        cells = []
        wrong = dict[str | None, str]()
        unknown = [name for name in row if name not in self._is_number]
        if len(row) > len(self.names):  # one error is enough for many unknown keys
            del unknown[1:]
        else:
            for name, is_number in self._is_number.items():
                try:
                    cells.append(_read_cell(row, name, is_number, listed))
                except ValueError as error:
                    wrong[name] = str(error)

        for name in unknown:
            hint = suggest_column(name, self.names, 8)
            wrong[name] = f"the model has no column {name!r:.60}; {hint}"
        return cells, wrong

    def _encode(self, rows: list[list[Any]], notes: Counter[str]) -> Any:
        if not self._has_names:
            return np.array(rows, dtype=np.float64)

        columns = map(unify_cells, zip(*rows, strict=True))
        table = dict(zip(self.prepare.inputs, columns, strict=True))
        with np.errstate(over="ignore"):  # `_check_finite` names cells that overflow
            return self.prepare.encode(table, notes)

    def _check_finite(self, X: Any) -> None:
        """Raise BadRows for cells that the model needs, or that overflow when scaled."""
        wrong = np.argwhere(~np.isfinite(X))[:MOST_ERRORS].tolist()
        if not wrong:
            return

        names: list[str] = []
        for column in self.prepare.columns_:
            names += [column.name] * len(column.features)
        message = (
            "the cell is missing, or too large for this model: correct it, or leave "
            "the row out."
        )
        raise BadRows([CellError(i + 1, names[j], message) for i, j in wrong])

    def _describe_row(self) -> str:
        numbers = f"a list of {len(self.names)} numbers"
        if not self._has_names:
            return f"each row must be {numbers}; /schema describes the columns."

        either = f", or {numbers}" if self._takes_lists else ""
        return (
            f"each row must be an object by column name{either}; /schema lists the "
            f"columns."
        )


def parse_rows(body: bytes, most_rows: int) -> list[Any]:
    """Parse the rows of `{"rows": [...]}`.

    The parser limits the depth, and refuses incomplete characters.
    """
    try:
        found = from_json(body)
    except ValueError as error:
        raise BadInput(f"the request is not valid JSON ({error!s:.100}).") from None

    rows = found.get("rows") if isinstance(found, dict) else None
    if not isinstance(rows, list) or not rows:
        raise BadInput(
            'the request has no rows: send {"rows": [...]} with one object or list per '
            "row."
        )
    if len(found) > 1:
        unknown = next(key for key in found if key != "rows")
        raise BadInput(
            f'the request has the unknown key {unknown!r:.60}: only "rows" is allowed.'
        )
    if len(rows) > most_rows:
        raise BadInput(
            f"the request has {len(rows)} rows, but the limit is {most_rows}: send "
            f"fewer rows at a time."
        )

    return rows


def _read_cell(row: dict[str, Any], name: str, is_number: bool, listed: bool) -> Any:
    """Return a cell, or raise ValueError that says what is wrong.

    Text in a column of numbers is read as in a file: "4.5", "NA".
    """
    if name not in row:
        raise ValueError(
            f"the row has no column {name!r}, which the model needs: give null if it "
            f"is unknown."
        )

    cell = row[name]
    if isinstance(cell, float) or (type(cell) is int and is_number):
        try:
            if math.isfinite(cell):
                return float(cell)
        except OverflowError:
            pass

        null = "" if listed else ", or give null"
        raise ValueError(
            f"{str(cell)[:30]} is not a finite number below 1e308: correct it{null}."
        )
    if listed or isinstance(cell, dict | list):
        wanted = "a number" if listed else "text, a number or null"
        raise ValueError(f"the cell is {KINDS[type(cell)]}: give {wanted}.")

    return cell


def unify_cells(cells: tuple[Any, ...]) -> list[Any]:
    """Give the cells of a column one type: if types differ, all become text."""
    kinds = {type(cell) for cell in cells if cell is not None}
    huge = any(isinstance(cell, int) and abs(cell) >= 2**63 for cell in cells)
    if len(kinds) <= 1 and not huge:
        return list(cells)

    return [
        cell if cell is None or isinstance(cell, str) else format_label(cell)
        for cell in cells
    ]
