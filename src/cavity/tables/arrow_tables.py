"""Tables of any kind, frames, arrays of torch, CuPy or JAX, sparse ones: whether a
model can read them, and all as Arrow tables.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from cavity.errors import BadInput, missing_extra

DENSE_BYTES = 128 << 20  # maximum size of a sparse table as a dense one
MAX_COLUMNS = 5_000  # of a sparse table that a model is fitted to
PROTOCOLS = "__dlpack__", "__cuda_array_interface__"


class Chunk(NamedTuple):
    """Rows of some columns as an Arrow table."""

    table: Any  # pyarrow.Table
    first: int  # number of the first row, in file order
    where: str  # the file


def is_foreign(value: Any) -> bool:
    """Return whether this is an array of another library than NumPy; tables and arrays
    of Arrow are read as such.
    """
    kind = type(value)  # not the value: a frame may have a column of that name
    own = (
        isinstance(value, np.ndarray) or kind.__module__.partition(".")[0] == "pyarrow"
    )
    return not own and any(hasattr(kind, name) for name in PROTOCOLS)


def to_host(value: Any) -> Any:
    """Return an array of another library, of any device and number type, as a NumPy
    array; anything else unchanged.
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
        except (
            BufferError,
            RuntimeError,
            TypeError,
            ValueError,
        ):  # torch lacks this device or number type
            if standard:
                return np.from_dlpack(value, device="cpu")
            return np.asarray(value)
    value = value.detach().cpu()
    return (
        value.float() if value.dtype == torch.bfloat16 else value
    ).numpy()  # NumPy has no bfloat16


def to_plain(value: Any, what: str) -> Any:
    """Return an array of another library as a NumPy array, anything else as it is;
    refuse masked cells, which are missing.
    """
    masked = 0
    if isinstance(value, np.ma.MaskedArray):
        masked = int(np.ma.getmaskarray(value).sum())
    if masked:
        raise BadInput(
            f"{what} is a masked array with {masked} masked cells, which are missing "
            f"values. Fill them in, for example with "
            f"{what}.filled(...) or a SimpleImputer on {what}.filled(numpy.nan), or "
            f"drop these rows."
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
    """Return whether X is a stream of Arrow batches, such as a RecordBatchReader, and
    not an array or frame.
    """
    kind = type(X)
    return hasattr(kind, "__arrow_c_stream__") and not (
        hasattr(kind, "__array__") and hasattr(kind, "shape")
    )


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
    """Return the names of a table's columns; none for an array or a dict."""
    return list(X.column_names if is_arrow(X) else getattr(X, "columns", ()))


def is_numeric(X: Any) -> bool:
    """Return whether all columns of a frame have a type of numbers; an array is left to
    scikit-learn unless it holds dates.
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
    structured = getattr(getattr(X, "dtype", None), "names", None)
    if structured or (isinstance(X, list) and X and isinstance(X[0], dict)):
        raise BadInput(
            "X is a list of dicts or a structured array: give a data frame, "
            "pandas.DataFrame(X)."
        )
    twice = find_twice(list_names(X))
    if twice is not None:
        raise BadInput(f"two columns have the name {twice!r}: rename one of them.")


def find_twice(names: Sequence[Any]) -> Any:
    """Return a name that stands twice; None if all differ.

    Several columns may have none.
    """
    return next(
        (name for name, count in Counter(names).items() if name != "" and count > 1),
        None,
    )


def is_sparse(X: Any) -> bool:
    """Return whether X is a sparse array or matrix of SciPy, without loading SciPy."""
    return hasattr(type(X), "tocsr")  # not of X: a frame may have a column of that name


def is_large(X: Any) -> bool:
    return bool(8 * math.prod(X.shape) > DENSE_BYTES)


def refuse_many_columns(X: Any) -> None:
    if is_sparse(X) and X.shape[-1] > MAX_COLUMNS:
        raise BadInput(
            f"X is sparse and has {X.shape[-1]:,} columns; a model takes up to "
            f"{MAX_COLUMNS:,} of them. Reduce them first, for "
            "example with make_pipeline(TruncatedSVD(100), ...), SelectKBest, or "
            "max_features= of TfidfVectorizer."
        )


def to_dense(X: Any) -> Any:
    """Return an array of another library or a sparse table as a dense NumPy array, a
    stream as a table; refuse masked cells.
    """
    if is_stream(X):
        return read_stream(X)
    if type(X).__module__.partition(".")[0] == "pandas" and is_frame(X):
        return _to_plain_frame(X)
    if not is_sparse(X):
        return to_plain(X, "X")
    if is_large(X):
        raise BadInput(
            f"X is sparse with {X.shape[0]:,} rows and {X.shape[1]:,} columns, and all "
            f"its rows are needed at once, but a dense "
            f"table would be larger than {DENSE_BYTES >> 20} MiB. Give fewer rows or "
            f"columns; or fit with positive weights and a "
            "method that reads rows in batches (the default of GPClassifier, 'svi' of "
            "GPRegressor)."
        )
    return X.toarray()


def _to_plain_frame(frame: Any) -> Any:
    """Return a frame of pandas with dense columns; intervals are texts, and periods
    dates.
    """
    changed: dict[Any, Any] = {}
    for name, dtype in frame.dtypes.items():
        kind = str(getattr(getattr(dtype, "categories", None), "dtype", dtype))
        if kind.startswith("Sparse"):
            changed[name] = dtype.subtype
        elif kind.startswith(("interval", "period")):
            changed[name] = str if kind.startswith("interval") else "datetime64[ns]"
    return frame.astype(changed) if changed else frame


def import_pyarrow(part: str = "") -> Any:
    """Import pyarrow, or a part of it such as ".dataset"; the error says how to install
    it.
    """
    try:
        return import_module("pyarrow" + part)
    except ImportError as error:
        raise missing_extra("pyarrow", "arrow") from error


def release_memory() -> None:
    """Return unused memory of Arrow's pool to the system, so that other libraries can
    use it.
    """
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
    if types.is_dictionary(kind):
        return "text"
    tests = {
        "nothing": (types.is_null,),
        "number": (
            types.is_integer,
            types.is_floating,
            types.is_boolean,
            types.is_decimal,
        ),
        "text": (types.is_string, types.is_large_string, types.is_string_view),
        "duration": (types.is_duration,),
        "date": (types.is_temporal,),
    }
    return next(
        (name for name, each in tests.items() if any(test(kind) for test in each)),
        "other",
    )


def to_chunk(data: Any, names: Sequence[str] | None = None) -> Chunk:
    """Convert a table of any kind to a chunk; `names` are those of an array's columns."""
    if isinstance(data, Chunk):
        return data
    arrow = import_pyarrow()
    data = to_dense(data)
    refuse_foreign(data)
    try:
        if isinstance(data, list | tuple) or (
            hasattr(data, "__array__") and not is_frame(data)
        ):
            # nanoseconds as objects would be whole numbers
            kind = getattr(getattr(data, "dtype", None), "kind", "O")
            data = _by_name(np.asarray(data, None if kind in "mM" else object), names)
        elif type(data).__module__.partition(".")[0] == "pandas":
            data = {str(name): _to_column(data[name], name) for name in data.columns}
        return Chunk(arrow.table(data), 0, "")
    except BadInput:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(
            f"the data are not a table with named columns ({error!s:.200}): give a "
            f"data frame or a pyarrow table."
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
    if names is None:
        names = [f"x{j}" for j in range(array.shape[1])]
    if len(names) != array.shape[1]:
        raise BadInput(
            f"X has {array.shape[1]} features, but the training rows had {len(names)} "
            f"columns. Expecting {len(names)} features, "
            "those columns in their order as they are, not prepared; or give a data "
            "frame."
        )
    return {name: _to_column(array[:, j], name) for j, name in enumerate(names)}


def _to_column(values: Any, name: Any) -> Any:
    """Return a column as an array of Arrow: as texts if its cells are objects of
    several types, or of one that Arrow lacks.
    """
    arrow = import_pyarrow()
    try:
        return arrow.array(values, from_pandas=True)
    except OverflowError:
        raise BadInput(
            f"column {name!r} has a whole number of more than 19 digits: write it with "
            f"a decimal point, or use other units."
        ) from None
    except arrow.ArrowException:
        if any(isinstance(v, complex | np.complexfloating) for v in values):
            raise BadInput(
                f"Complex data not supported: column {name!r} has complex numbers; "
                f"give real and imaginary parts as columns."
            ) from None
    return arrow.array([None if is_missing(v) else str(v) for v in values])
