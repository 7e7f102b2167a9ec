"""What the adapters to Ray and Spark share: their checks, where a run is stored, and predictions as columns of a table."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

from cavity.common.object_stores import is_uri
from cavity.errors import BadInput, BadOption, CavityError, LostRank

FILE = "model.cavity"


class Estimator(Protocol):
    """What the workers of an engine need of a GPClassifier or GPRegressor."""

    training: Any
    predict: Any
    predict_proba: Any
    _load: Any


def check_request(estimator: object, **counts: Any) -> None:
    """Refuse what is not an estimator, and numbers of workers that are not positive."""
    if not hasattr(estimator, "_load"):
        raise BadOption(f"a {type(estimator).__name__} is not an estimator of cavity: give a GPClassifier.")
    for name, value in counts.items():
        check_count(name, value, 1)


def check_count(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadOption(f"{name}={value!r} must be a {'positive' if least else 'non-negative'} whole number.")


def make_absolute(path: str | os.PathLike[str]) -> str:
    """Return a path that workers understand, whose working folder is another."""
    text = os.fspath(path)
    return text if is_uri(text) else os.path.abspath(text)


def choose_error(raised: list[Exception]) -> Exception | None:
    """Return the first error of cavity, of the errors of the ranks in order; ranks that wait for a failed one only lose it."""
    ours = [error for error in raised if isinstance(error, CavityError)]
    known = [error for error in ours if not isinstance(error, LostRank)]
    return next(iter(known or ours), None)


def predict_columns(estimator: Estimator, table: Any) -> dict[str, Any]:
    """Predict the rows of an Arrow table, as columns: label and p_CLASS of a classifier, mean and std of a regressor."""
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        return dict(zip(("mean", "std"), estimator.predict(table, return_std=True), strict=True))
    P = estimator.predict_proba(table)
    return {"label": classes[P.argmax(1)]} | {f"p_{c}": P[:, i] for i, c in enumerate(classes)}


def append_predictions(estimator: Estimator, table: Any) -> Any:
    """Return an Arrow table with the predictions as its last columns; columns of the same names are replaced."""
    import pyarrow

    for name, column in predict_columns(estimator, table).items():
        if name in table.column_names:
            table = table.drop_columns([name])
        table = table.append_column(name, pyarrow.array(column))
    return table


def find_rows(data: Any, folder: str, kind: str, write: Callable[[str], Any] | None) -> str:
    """Return the path of the rows; data of the engine are written to the folder first. `write` is None for other data."""
    if isinstance(data, str | os.PathLike):
        return make_absolute(data)
    if write is None:
        raise BadInput(f"a {type(data).__name__} is not a path or a {kind}.")
    write(f"{folder}/rows")
    return f"{folder}/rows"
