"""Requests as typed models, made from the columns of the served model, and their rows as features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    TypeAdapter,
    create_model,
)
from pydantic import ValidationError as Invalid

from cavity.cli.models import Model
from cavity.cli.serving.json_rows import ROW_CHARACTERS, parse_rows
from cavity.errors import BadInput
from cavity.rows.columns.column_kinds import Number, Unchanged, suggest_column
from cavity.saving.json_checks import format_label

MOST_ERRORS = 20  # reported per request
Finite = Annotated[StrictFloat, Field(allow_inf_nan=False)]
NumberCell = Finite | StrictBool | StrictStr | None  # text is read as in a file: "4.5", "NA"
CategoryCell = StrictStr | StrictBool | StrictInt | Finite | None


class CellError(BaseModel):
    """A cell, or a row, that cannot be used."""

    row: int = Field(description="Number of the row in the request, from 1.")
    column: str | None = Field(description="Name of the column; null if the whole row is wrong.")
    message: str


class BadRows(BadInput):
    """Some rows of a request cannot be used; `errors` names rows and columns."""

    def __init__(self, errors: list[CellError]) -> None:
        self.errors = errors
        first = errors[0]
        place = f"row {first.row}" + ("" if first.column is None else f", column {first.column!r}")
        more = f" (and {len(errors) - 1} more errors)" if len(errors) > 1 else ""
        super().__init__(f"{place}: {first.message}{more}")


class RowReader:
    """Reads the rows of requests for one model.

    `Body` is the type of a request, for OpenAPI. Rows are objects by column name, or lists of numbers if the model has no names
    or only numeric columns.
    """

    def __init__(self, model: Model, most_rows: int) -> None:
        self.model, self.most_rows = model, most_rows
        width = model.classifier.n_features_in_ if model.prepare is None else len(model.prepare.inputs)
        listed: Any = Annotated[list[Finite], Field(min_length=width, max_length=width)]
        self.names = [str(i + 1) for i in range(width)]
        self._lists: TypeAdapter[Any] | None = TypeAdapter(listed)
        self._objects: TypeAdapter[Any] | None = None
        row = listed
        if model.prepare is not None:
            self.names = list(model.prepare.inputs)
            named = make_row_model(model)
            self._objects = TypeAdapter(named)
            if model.prepare.inputs != model.prepare.names:
                self._lists = None
            row = named if self._lists is None else named | listed
        self._known = set(self.names)
        self._most_characters = ROW_CHARACTERS + sum(2 * len(name) + 64 for name in self.names)
        self.Body = create_model(
            "PredictRequest",
            __config__=ConfigDict(extra="forbid"),
            rows=(list[row], Field(min_length=1, max_length=most_rows)),  # type: ignore[valid-type]
        )

    def read(self, body: bytes, notes: Counter[str]) -> Any:
        """Read a request: features, [n D]. Raises BadInput; BadRows if the error has a place."""
        rows: list[list[Any]] = []
        errors: list[CellError] = []
        for number, row in enumerate(parse_rows(body, self.most_rows, self._most_characters), 1):
            try:
                rows.append(self._read_row(number, row))
            except Invalid as error:
                errors += self._describe_errors(number, error)
            except BadRows as error:
                errors += error.errors
            if len(errors) >= MOST_ERRORS:
                break
        if errors:
            raise BadRows(errors[:MOST_ERRORS])
        X = self._encode(rows, notes)
        self._check_finite(X)
        return X

    def _read_row(self, number: int, row: Any) -> list[Any]:
        """Check the cells of a row, and return them in the order of the columns."""
        if isinstance(row, dict) and self._objects is not None:
            if len(row) > len(self.names):  # at once, since each unknown key would cost an error
                name = next(key for key in row if key not in self._known)
                raise BadRows([CellError(row=number, column=name, message=self._describe_unknown(name))])
            return list(self._objects.validate_python(row).__dict__.values())
        if isinstance(row, list) and self._lists is not None:
            return list(self._lists.validate_python(row))
        raise BadRows([CellError(row=number, column=None, message=self._describe_row())])

    def _encode(self, rows: list[list[Any]], notes: Counter[str]) -> Any:
        prepare = self.model.prepare
        if prepare is None:
            return np.array(rows, dtype=np.float64)
        columns = map(unify_cells, zip(*rows, strict=True))
        with np.errstate(over="ignore"):  # `_check_finite` names what overflows
            return prepare.encode(dict(zip(prepare.inputs, columns, strict=True)), notes)

    def _check_finite(self, X: Any) -> None:
        """Name the cells that are missing where the model needs them, or overflow when they are scaled."""
        wrong = np.argwhere(~np.isfinite(X))[:MOST_ERRORS]
        prepare = self.model.prepare
        names = self.names
        if prepare is not None:
            names = [column.name for column in prepare.columns_ for _ in column.features]
        if len(wrong):
            message = "the cell is missing, or too large for this model: correct it, or leave the row out."
            raise BadRows([CellError(row=i + 1, column=names[j], message=message) for i, j in wrong])

    def _describe_unknown(self, column: str) -> str:
        return f"the model has no column {column!r:.60}; {suggest_column(column, self.names, 8)}"

    def _describe_row(self) -> str:
        numbers = f"a list of {len(self.names)} numbers"
        if self._objects is None:
            return f"each row must be {numbers}; /schema describes the columns."
        either = "" if self._lists is None else f", or {numbers}"
        return f"each row must be an object by column name{either}; /schema lists the columns."

    def _describe_errors(self, row: int, error: Invalid) -> Iterator[CellError]:
        seen = set()
        for found in error.errors(include_url=False, include_context=False)[: 4 * MOST_ERRORS]:
            key = found["loc"][0] if found["loc"] else None
            if key in seen:  # a cell has one error per type that it may have
                continue
            seen.add(key)
            column = self.names[key] if isinstance(key, int) else key
            yield CellError(
                row=row,
                column=column,
                message=self._describe_row() if column is None else self._describe_cell(column, found),
            )

    def _describe_cell(self, column: str, found: Any) -> str:
        if found["type"] == "missing":
            return f"the row has no column {column!r}, which the model was trained with; give null if it is unknown."
        if found["type"] == "extra_forbidden":
            return self._describe_unknown(column)
        given, nulls = found["input"], "" if self._objects is None else " or null"
        if isinstance(given, int | float) and not isinstance(given, bool):
            return f"{str(given)[:30]} is not a finite number, or above 1e308: correct it{nulls and ', or give null'}."
        kind = {dict: "an object", list: "a list", str: "text", bool: "a boolean", type(None): "null"}
        what = "a number" if isinstance(found["loc"][0], int) else "text, a number"
        return f"the cell is {kind.get(type(given), 'not a cell')}: give {what}{nulls if what != 'a number' else ''}."


def make_row_model(model: Model) -> type[BaseModel]:
    """Make the type of a row from the columns of a model. All columns are required, and others are refused."""
    assert model.prepare is not None
    fields: dict[str, Any] = {}
    for i, column in enumerate(model.prepare.columns_):
        cell = NumberCell if isinstance(column, Number | Unchanged) else CategoryCell
        fields[f"column_{i}"] = (cell, Field(alias=column.name, description=column.describe()))
    return create_model("Row", __config__=ConfigDict(extra="forbid"), **fields)


def unify_cells(cells: tuple[Any, ...]) -> list[Any]:
    """Give the cells of a column one type, which a table needs: all become text if they differ."""
    kinds = {type(cell) for cell in cells if cell is not None}
    huge = int in kinds and any(isinstance(cell, int) and abs(cell) >= 2**63 for cell in cells)
    if len(kinds) <= 1 and not huge:
        return list(cells)
    return [cell if cell is None or isinstance(cell, str) else format_label(cell) for cell in cells]
