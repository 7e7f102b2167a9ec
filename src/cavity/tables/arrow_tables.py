"""Tables of any kind as Arrow tables: frames, sparse tables, arrays of any library."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from cavity.errors import BadInput, missing_extra

DENSE_BYTES = 128 << 20  # maximum size of a sparse table as a dense one
MAX_COLUMNS = 5_000  # the limit for a sparse table in a fit
# Arrow's names of types; a duration is temporal, too
TYPES = {
    "text": ("dictionary", "string", "large_string", "string_view"),
    "nothing": ("null",),
    "number": ("integer", "floating", "boolean", "decimal"),
    "duration": ("duration",),
    "date": ("temporal",),
}
PROTOCOLS = "__dlpack__", "__cuda_array_interface__"  # of arrays of other libraries


class Chunk(NamedTuple):
    """Rows of some columns as an Arrow table."""

    table: Any  # pyarrow.Table
    first: int  # number of the first row, in file order
    where: str  # the file


def is_foreign(value: Any) -> bool:
    """Return whether this is an array of a library other than NumPy and Arrow."""
    if isinstance(value, np.ndarray) or is_arrow(value):
        return False

    kind = type(value)  # not the value: a frame may have a column of that name
    return any(hasattr(kind, name) for name in PROTOCOLS)


def to_host(value: Any) -> Any:
    """Convert an array of another library, on any device, to NumPy.

    Anything else is returned unchanged.
    """
    if not is_foreign(value):
        return value

    import torch
    from torch.utils.dlpack import from_dlpack

    if not isinstance(value, torch.Tensor):
        standard = hasattr(value, "__dlpack__")
        try:
            if standard:
                value = from_dlpack(value)
            else:
                value = torch.as_tensor(value)
        # torch does not support this device or number type
        except (BufferError, RuntimeError, TypeError, ValueError):
            if standard:
                return np.from_dlpack(value, device="cpu")

            return np.asarray(value)

    value = value.detach().cpu()
    if value.dtype == torch.bfloat16:  # NumPy does not have it
        value = value.float()
    return value.numpy()


def to_plain(value: Any, what: str) -> Any:
    """Convert an array of another library to NumPy; refuse masked cells."""
    if isinstance(value, np.ma.MaskedArray):
        masked = int(np.ma.getmaskarray(value).sum())
        if masked:
            raise BadInput(
                f"{what} is a masked array with {masked} masked cells, which are "
                f"missing values. Fill them in, for example with {what}.filled(...) or "
                f"a SimpleImputer on {what}.filled(numpy.nan), or drop these rows."
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
    """Return whether X is an object of pyarrow, without loading pyarrow."""
    return _is_from(X, "pyarrow")


def _is_from(X: Any, package: str) -> bool:
    return type(X).__module__.partition(".")[0] == package


def is_stream(X: Any) -> bool:
    """Return whether X is a stream of Arrow batches, such as a RecordBatchReader.

    Frames and arrays may also be read as streams, but are none.
    """
    kind = type(X)
    is_table = hasattr(kind, "__array__") and hasattr(kind, "shape")
    return hasattr(kind, "__arrow_c_stream__") and not is_table


def read_stream(X: Any) -> Any:
    """Read a stream of Arrow batches into memory as a pyarrow table."""
    arrow = import_pyarrow()
    try:
        return arrow.table(X)
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"a {type(X).__name__} is not a table: {error!s:.200}."
        ) from error


def list_names(X: Any) -> list[Any]:
    """Return the names of a table's columns; empty for an array or a dict."""
    if is_arrow(X):
        return list(X.column_names)

    return list(getattr(X, "columns", ()))


def is_numeric(X: Any) -> bool:
    """Return whether all columns have a numeric type.

    scikit-learn validates arrays, so only arrays of dates are not numeric.
    """
    if not is_frame(X):
        return getattr(getattr(X, "dtype", None), "kind", "") not in tuple("mM")
    if is_arrow(X):
        return all(classify_type(field.type) == "number" for field in X.schema)

    return len(X.columns) > 0 and all(
        _is_number_type(X[name].dtype) for name in X.columns
    )


def _is_number_type(dtype: Any) -> bool:
    if hasattr(dtype, "is_numeric"):  # polars
        return bool(dtype.is_numeric() or str(dtype) == "Boolean")

    return dtype.kind in "biuf"


def refuse_foreign(X: Any) -> None:
    """Refuse tables that must be converted, and two columns of one name."""
    if type(X).__name__ == "LazyFrame":
        raise BadInput(
            "X is a LazyFrame, whose rows are not computed yet: give X.collect()."
        )

    is_structured = getattr(getattr(X, "dtype", None), "names", None)
    has_dicts = isinstance(X, list) and X and isinstance(X[0], dict)
    if is_structured or has_dicts:
        raise BadInput(
            "X is a list of dicts or a structured array: give a data frame, "
            "pandas.DataFrame(X)."
        )

    twice = find_twice(list_names(X))
    if twice is not None:
        raise BadInput(f"two columns have the name {twice!r}: rename one of them.")


def find_twice(names: Sequence[Any]) -> Any:
    """Return a name that occurs twice; None if all differ.

    Several columns may be unnamed.
    """
    for name, count in Counter(names).items():
        if name != "" and count > 1:
            return name
    return None


def is_sparse(X: Any) -> bool:
    """Return whether X is a sparse array or matrix of SciPy, without loading SciPy."""
    return hasattr(type(X), "tocsr")  # not of X: a frame may have a column of that name


def is_large(X: Any) -> bool:
    return bool(8 * math.prod(X.shape) > DENSE_BYTES)


def refuse_many_columns(X: Any) -> None:
    if is_sparse(X) and X.shape[-1] > MAX_COLUMNS:
        raise BadInput(
            f"X is sparse and has {X.shape[-1]:,} columns, but a model takes at most "
            f"{MAX_COLUMNS:,}. Reduce them first, for example with "
            "make_pipeline(TruncatedSVD(100), ...), SelectKBest, or max_features= of "
            "TfidfVectorizer."
        )


def to_dense(X: Any) -> Any:
    """Convert sparse tables, streams and arrays of other libraries; refuse masked cells."""
    if is_stream(X):
        return read_stream(X)
    if _is_from(X, "pandas") and is_frame(X):
        return _to_plain_frame(X)
    if not is_sparse(X):
        return to_plain(X, "X")
    if is_large(X):
        raise BadInput(
            f"X is sparse with {X.shape[0]:,} rows and {X.shape[1]:,} columns, and all "
            "its rows are needed at once, but a dense table would be larger than "
            f"{DENSE_BYTES >> 20} MiB. Give fewer rows or columns; or fit with positive "
            "weights and a method that reads rows in batches (the default of "
            "GPClassifier, 'svi' of GPRegressor)."
        )

    return X.toarray()


def _to_plain_frame(frame: Any) -> Any:
    """Make sparse columns of a pandas frame dense, intervals texts, and periods dates."""
    changed: dict[Any, Any] = {}
    for name, dtype in frame.dtypes.items():
        kind = str(getattr(getattr(dtype, "categories", None), "dtype", dtype))
        if kind.startswith("Sparse"):
            changed[name] = dtype.subtype
        elif kind.startswith("interval"):
            changed[name] = str
        elif kind.startswith("period"):
            changed[name] = "datetime64[ns]"

    return frame.astype(changed) if changed else frame


def import_pyarrow(part: str = "") -> Any:
    """Import pyarrow or a part of it (".dataset"); the error says how to install it."""
    try:
        return import_module("pyarrow" + part)
    except ImportError as error:
        raise missing_extra("pyarrow", "arrow") from error


def release_memory() -> None:
    """Return unused memory of Arrow's pool to the system."""
    import_pyarrow().default_memory_pool().release_unused()


def get_column(table: Any, name: str) -> Any:
    """Return a column by name as one array, with dictionaries decoded."""
    column = table.column(name).combine_chunks()
    types = import_pyarrow().types
    if not types.is_dictionary(column.type):
        return column

    values = column.dictionary
    if types.is_string_view(values.type):  # polars; Arrow cannot take from views
        values = values.cast("string")
    return values.take(column.indices)


def classify_type(kind: Any) -> str:
    """Classify an Arrow type as number, text, date, duration, nothing or other."""
    types = import_pyarrow().types
    for name, arrow_names in TYPES.items():
        if any(getattr(types, f"is_{arrow}")(kind) for arrow in arrow_names):
            return name
    return "other"


def to_chunk(data: Any, names: Sequence[str] | None = None) -> Chunk:
    """Convert a table of any kind to a chunk; `names` are for the columns of an array."""
    if isinstance(data, Chunk):
        return data

    arrow = import_pyarrow()
    data = to_dense(data)
    refuse_foreign(data)
    is_array = hasattr(data, "__array__") and not is_frame(data)
    try:
        if is_array or isinstance(data, list | tuple):
            # nanoseconds as objects would be whole numbers
            kind = getattr(getattr(data, "dtype", None), "kind", "O")
            data = _by_name(np.asarray(data, None if kind in "mM" else object), names)
        elif _is_from(data, "pandas"):
            data = {str(name): _to_column(data[name], name) for name in data.columns}

        return Chunk(arrow.table(data), 0, "")
    except BadInput:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(
            f"the data are not a table with named columns ({error!s:.200}): give a "
            "data frame or a pyarrow table."
        ) from error


def _by_name(array: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """Return the columns of an array by name: x0, x1, ... unless names are given."""
    if array.ndim != 2:
        few = ""
        if names is not None:
            few = f" with the columns {', '.join(map(repr, names[:8]))}"
        raise BadInput(
            f"the data are not a table with named columns: give a data frame{few}."
        )

    D = array.shape[1]
    if names is None:
        names = [f"x{j}" for j in range(D)]
    if len(names) != D:
        raise BadInput(
            f"X has {D} features, but the training rows had {len(names)} columns. "
            f"Expecting {len(names)} features: the same columns in the same order, not "
            "prepared; or give a data frame."
        )

    return {name: _to_column(array[:, j], name) for j, name in enumerate(names)}


def _to_column(values: Any, name: Any) -> Any:
    """Convert a column to an array of Arrow.

    Objects of several types, or of types that Arrow does not have, become texts.
    """
    arrow = import_pyarrow()
    try:
        return arrow.array(values, from_pandas=True)
    except OverflowError:
        raise BadInput(
            f"column {name!r} has a whole number of more than 19 digits: write it with "
            "a decimal point, or use other units."
        ) from None
    except arrow.ArrowException:
        if any(isinstance(v, complex | np.complexfloating) for v in values):
            raise BadInput(
                f"Complex data not supported: column {name!r} has complex numbers; "
                "give real and imaginary parts as separate columns."
            ) from None

    return arrow.array([None if is_missing(v) else str(v) for v in values])
