"""Datasets that people have: a Parquet or Arrow file, a folder of them, a table of Delta Lake or Iceberg, one of pyarrow."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import Any

from cavity.common.object_stores import list_files
from cavity.errors import BadInput, missing_extra
from cavity.rows.arrow_tables import import_pyarrow
from cavity.rows.files.iceberg import IcebergTable, is_iceberg, open_iceberg, refuse_folder

LOG = "_delta_log"  # folder in a Delta table that says which files belong to its newest version
FORMATS = {".parquet": "parquet", ".pq": "parquet", ".arrow": "ipc", ".feather": "ipc", ".ipc": "ipc"}


def open_dataset(data: Any) -> Any:
    """Open a path, a table or a dataset as a pyarrow dataset, or as an IcebergTable, which has the same attributes."""
    ds = import_pyarrow(".dataset")
    if is_iceberg(data):
        return open_iceberg(data)
    if isinstance(data, ds.Dataset | IcebergTable):
        return data
    if not isinstance(data, str | os.PathLike):
        try:
            return ds.dataset(data)
        except (TypeError, ValueError) as error:
            raise BadInput(
                f"a {type(data).__name__} of pyarrow is not a table: {error}. Give a pyarrow.Table or a dataset."
            ) from error
    path, ((filesystem, base), found) = os.fspath(data), list_files(data, LOG)
    if found and found[0].endswith(f"/{LOG}"):
        return _open_delta(data)
    refuse_folder(path, found)
    kind_of = {name: FORMATS.get(PurePosixPath(name).suffix.lower()) for name in found}
    kinds = {kind for kind in kind_of.values() if kind is not None}
    if len(kinds) != 1:
        none = "is not, and does not contain, a file that can be read in pieces"
        what = "contains both Parquet and Arrow files" if kinds else none
        raise BadInput(f"{path!r} {what}; file names must end in {', '.join(FORMATS)} (or .npy, with y=).")
    files, where = [name for name in found if kind_of[name]], {"filesystem": filesystem}
    try:
        return ds.dataset(files, format=kinds.pop(), partitioning="hive", partition_base_dir=base, **where)
    except (OSError, ValueError) as error:  # pyarrow's errors derive from these
        raise BadInput(f"{path!r} cannot be read: {error}") from error


def _open_delta(path: str | os.PathLike[str]) -> Any:
    """Open the newest version of a Delta table as a dataset of pyarrow. Credentials are those of deltalake."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError as error:
        raise missing_extra("deltalake", "delta") from error
    where = os.fspath(path).partition("?")[0]
    try:
        return DeltaTable(where).to_pyarrow_dataset()
    except (DeltaError, OSError, ValueError) as error:
        raise BadInput(
            f"the Delta table {where!r} cannot be read: {' '.join(str(error).split()):.300}"
        ) from error
