"""Tables of any kind, frames, tensors, sparse arrays: whether a model can read them, and all as Arrow tables.

Libraries are loaded when needed. Errors name the column and say what to do.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadInput, missing_extra
from cavity.rows.foreign_arrays import to_host

PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # the name that pandas gives the index of a frame in a file
DENSE_BYTES = 128 << 20  # maximum size of a sparse table as a dense one
MAX_COLUMNS = 5_000  # of a sparse table that a model is fitted to


class Chunk(NamedTuple):
    """Rows of some columns as an Arrow table."""

    table: Any  # pyarrow.Table
    first: int  # number of the first row, in file order
    where: str  # the file


def to_plain(value: Any, what: str) -> Any:
    """Return an array of another library, such as torch or CuPy, as a NumPy array; anything else as it is.

    Refuse a masked array with masked cells: they are missing values, and conversions would ignore the mask.
    """
    masked = int(np.ma.getmaskarray(value).sum()) if isinstance(value, np.ma.MaskedArray) else 0
    if masked:
        raise BadInput(
            f"{what} is a masked array with {masked} masked cells, which are missing values. Fill them in, for example with "
            f"{what}.filled(...) or a SimpleImputer on {what}.filled(numpy.nan), or drop these rows."
        )
    return to_host(value)


def is_missing(value: Any) -> bool:
    """Return whether a cell is missing: None, NA, NaT or NaN."""
    unknown = value is None or type(value).__name__ in ("NAType", "NaTType")
    return unknown or bool(np.isscalar(value) and value != value)


def is_frame(X: Any) -> bool:
    """Return whether X is a data frame or an Arrow table: it has named columns."""
    return hasattr(X, "shape") and hasattr(X, "columns")


def is_arrow(X: Any) -> bool:
    """Return whether X is a table of pyarrow, without loading pyarrow."""
    return type(X).__module__.partition(".")[0] == "pyarrow"


def is_stream(X: Any) -> bool:
    """Return whether X is a stream of Arrow batches, such as a RecordBatchReader, and not an array or frame."""
    kind = type(X)
    return hasattr(kind, "__arrow_c_stream__") and not (hasattr(kind, "__array__") and hasattr(kind, "shape"))


def read_stream(X: Any) -> Any:
    """Read a stream of Arrow batches into memory as a pyarrow table."""
    arrow = import_pyarrow()
    try:
        return arrow.table(X)
    except (TypeError, ValueError) as error:
        raise BadInput(f"a {type(X).__name__} is not a table: {error!s:.200}.") from error


def list_names(X: Any) -> list[Any]:
    """Return the names of a table's columns; none for an array or a dict."""
    return list(X.column_names if is_arrow(X) else getattr(X, "columns", ()))


def refuse_foreign(X: Any) -> None:
    """Refuse tables that must be converted, two columns of one name, and complex numbers."""
    if type(X).__name__ == "LazyFrame":
        raise BadInput("X is a LazyFrame, whose rows are not computed yet: give X.collect().")
    if getattr(getattr(X, "dtype", None), "names", None) or (
        isinstance(X, list) and X and isinstance(X[0], dict)
    ):
        raise BadInput("X is a list of dicts or a structured array: give a data frame, pandas.DataFrame(X).")
    if isinstance(X, np.ndarray):
        if X.dtype.kind == "c":
            refuse_complex(int(np.atleast_2d(X).imag.any(0).argmax()))
        return
    names = list_names(X)
    twice = next((name for name, count in Counter(names).items() if name != "" and count > 1), None)
    if twice is not None:
        raise BadInput(f"two columns have the name {twice!r}: rename one of them.")
    for name in () if is_arrow(X) else names:
        if getattr(getattr(X[name], "dtype", None), "kind", "") == "c":
            refuse_complex(name)


def _refuse_long(column: str) -> NoReturn:
    raise BadInput(
        f"{column} has a whole number of more than 19 digits: write it with a decimal point, or use other units."
    ) from None


def refuse_complex(name: Any) -> NoReturn:
    raise BadInput(
        f"Complex data not supported: column {name!r} has complex numbers; give their real and imaginary parts as two columns."
    )


def is_sparse(X: Any) -> bool:
    """Return whether X is a sparse array or matrix of SciPy, without loading SciPy."""
    return hasattr(type(X), "tocsr")  # not of X: a frame may have a column of that name


def is_large(X: Any) -> bool:
    return bool(8 * math.prod(X.shape) > DENSE_BYTES)


def refuse_many_columns(X: Any) -> None:
    if is_sparse(X) and X.shape[-1] > MAX_COLUMNS:
        raise BadInput(
            f"X is sparse and has {X.shape[-1]:,} columns; a model takes up to {MAX_COLUMNS:,} of them. Reduce them first, for "
            "example with make_pipeline(TruncatedSVD(100), ...), SelectKBest, or max_features= of TfidfVectorizer."
        )


def to_dense(X: Any) -> Any:
    """Return an array of another library or a sparse table as a dense NumPy array, a stream as a table; refuse masked cells.

    A frame of pandas is returned with dense columns, and with None in place of NA among objects.
    """
    if is_stream(X):
        return read_stream(X)
    if type(X).__module__.partition(".")[0] == "pandas" and is_frame(X):
        return _to_plain_frame(X)
    if not is_sparse(X):
        return to_plain(X, "X")
    if is_large(X):
        raise BadInput(
            f"X is sparse with {X.shape[0]:,} rows and {X.shape[1]:,} columns, and all its rows are needed at once, but a dense "
            f"table would be larger than {DENSE_BYTES >> 20} MiB. Give fewer rows or columns; or fit with positive weights and a "
            "method that reads rows in batches (the default of GPClassifier, 'svi' of GPRegressor)."
        )
    return X.toarray()


def _to_plain_frame(frame: Any) -> Any:
    changed = {}
    for j, dtype in enumerate(frame.dtypes):
        if hasattr(dtype, "subtype") and str(dtype).startswith("Sparse"):
            changed[j] = frame.iloc[:, j].sparse.to_dense()
        elif str(dtype) == "object" and (lacks := frame.iloc[:, j].isna()).any():
            changed[j] = frame.iloc[:, j].where(~lacks, None)
    if changed:
        frame = frame.copy(deep=False)
        for j, column in changed.items():
            frame.isetitem(j, column)
    return frame


def import_pyarrow(part: str = "") -> Any:
    """Import pyarrow, or a part of it such as ".dataset"; the error says how to install it."""
    try:
        return import_module("pyarrow" + part)
    except ImportError as error:
        raise missing_extra("pyarrow", "arrow") from error


def release_memory() -> None:
    """Return unused memory of Arrow's pool to the system, so that other libraries can use it."""
    import_pyarrow().default_memory_pool().release_unused()


def get_column(table: Any, name: str) -> Any:
    """Return a column by name as one array, with dictionaries decoded."""
    column, types = table.column(name), import_pyarrow().types
    column = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    if types.is_dictionary(column.type):
        values = column.dictionary
        if types.is_string_view(values.type):  # polars; Arrow cannot take from views
            values = values.cast("string")
        column = values.take(column.indices)
    return column.combine_chunks() if hasattr(column, "combine_chunks") else column


def copy_columns(table: Any, names: Sequence[str], types: dict[str, Any]) -> dict[str, Any]:
    """Return columns with the types that they have in common over all files of a folder, if these may differ."""
    found = {name: get_column(table, name) for name in names}
    return {name: column.cast(types.get(name, column.type)) for name, column in found.items()}


def classify_type(kind: Any) -> str:
    """Classify an Arrow type as number, text, date, duration, nothing or other."""
    types = import_pyarrow().types
    if types.is_dictionary(kind):
        return "text"
    tests = {
        "nothing": (types.is_null,),
        "number": (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal),
        "text": (types.is_string, types.is_large_string, types.is_string_view),
        "duration": (types.is_duration,),
        "date": (types.is_temporal,),
    }
    return next((name for name, each in tests.items() if any(test(kind) for test in each)), "other")


def to_chunk(data: Any, names: Sequence[str] | None = None) -> Chunk:
    """Convert a table of any kind to a chunk; `names` are those of an array's columns."""
    if isinstance(data, Chunk):
        return data
    arrow, data = import_pyarrow(), to_dense(data)
    if not is_frame(data) and (isinstance(data, list | tuple) or hasattr(data, "__array__")):
        data = data if isinstance(data, np.ndarray) else to_object_array(data)
    try:
        if isinstance(data, arrow.RecordBatch):
            data = arrow.Table.from_batches([data])
        refuse_foreign(data)
        if isinstance(data, np.ndarray):
            data = _by_name(data, names)
        if type(data).__module__.partition(".")[0] == "pandas":
            data = _from_pandas(data)
        table = data if isinstance(data, arrow.Table) else arrow.table(data)
    except OverflowError:
        _refuse_long("a cell")
    except BadInput:
        raise
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"the data are not a table with named columns ({error!s:.200}): give a data frame or a pyarrow table."
        ) from error
    return Chunk(table, 0, "")


def to_object_array(X: Any) -> NDArray[Any]:
    try:
        return np.array(X, dtype=object)
    except ValueError:  # ragged: scikit-learn's message is about that
        return np.empty(0)


def _by_name(array: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """Return the columns of an array by name: x0, x1, ... unless names are given."""
    if array.ndim != 2:
        few = "" if names is None else f" with the columns {', '.join(map(repr, names[:8]))}"
        raise BadInput(f"the data are not a table with named columns: give a data frame{few}.")
    names = [f"x{j}" for j in range(array.shape[1])] if names is None else names
    if len(names) != array.shape[1]:
        raise BadInput(
            f"X has {array.shape[1]} features, but the training rows had {len(names)} columns. Expecting {len(names)} features, "
            "those columns in their order as they are, not prepared; or give a data frame."
        )
    return {name: _to_column(array[:, j], name) for j, name in enumerate(names)}


def _from_pandas(frame: Any) -> Any:
    """Convert a pandas frame; a column of objects of several types or of intervals becomes text, one of periods dates."""
    arrow = import_pyarrow()
    try:
        if not any(map(_is_spanned, frame.dtypes)):
            return arrow.Table.from_pandas(frame, preserve_index=False)
    except (arrow.ArrowInvalid, arrow.ArrowTypeError, OverflowError):
        if not frame.columns.is_unique:
            raise
    columns = {str(name): frame[name] for name in frame.columns}
    for name, column in columns.items():
        if str(column.dtype).startswith("period"):
            columns[name] = column.dt.to_timestamp()
    return arrow.table({name: _to_column(column, name) for name, column in columns.items()})


def _is_spanned(dtype: Any) -> bool:
    """Return whether cells of this dtype of pandas are intervals or periods, perhaps as categories."""
    kind = getattr(getattr(dtype, "categories", None), "dtype", dtype)
    return str(kind).startswith(("interval", "period"))


def _to_column(values: Any, name: str) -> Any:
    arrow = import_pyarrow()
    try:
        if not _is_spanned(getattr(values, "dtype", None)):
            return arrow.array(values, from_pandas=True)
    except OverflowError:
        _refuse_long(f"column {name!r}")
    except (arrow.ArrowInvalid, arrow.ArrowTypeError):
        if any(isinstance(v, complex | np.complexfloating) for v in values):
            refuse_complex(name)
    return arrow.array([None if is_missing(v) else str(v) for v in values])
