"""Tables of Iceberg: pyiceberg says which files, columns and deleted rows a snapshot has; rows are read by row group."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadInput, missing_extra
from cavity.rows.files.text_files import explain_errors

SCHEME = "iceberg://"
METADATA = ".metadata.json"
FIELD_ID = b"PARQUET:field_id"  # in the metadata of an Arrow field
FORM = f"{SCHEME}CATALOG/NAMESPACE.TABLE"
PAGE_BYTES = 1 << 20  # read at a time from a column


def is_iceberg(data: Any) -> bool:
    """Return whether data are a table or scan of pyiceberg, or name a table or its file of metadata."""
    if isinstance(data, str | os.PathLike):
        return os.fspath(data).startswith(SCHEME) or os.fspath(data).endswith(METADATA)
    return type(data).__module__.startswith("pyiceberg.table")


def open_iceberg(data: Any) -> IcebergTable:
    """Open a snapshot of a table. Catalogs and credentials are those of pyiceberg."""
    try:
        from pyiceberg.table import DataScan, StagedTable, Table
    except ImportError as error:
        raise missing_extra("pyiceberg", "iceberg") from error
    if isinstance(data, str | os.PathLike):
        data = _load_table(os.fspath(data))
    if isinstance(data, StagedTable) or not isinstance(data, Table | DataScan):
        raise BadInput(f"a {type(data).__name__} of pyiceberg cannot be read: give a Table or a DataScan.")
    return IcebergTable(data.scan() if isinstance(data, Table) else data)


def refuse_folder(path: str, files: list[str]) -> None:
    """Raise BadInput if a folder is that of an Iceberg table: its files also have rows that were deleted."""
    if any(name.endswith(METADATA) for name in files):
        raise BadInput(
            f"{path!r} is the folder of an Iceberg table, which does not say which files belong to it: give {FORM!r}, "
            f"a Table of pyiceberg, or the path of the newest {METADATA}."
        )


def _load_table(name: str) -> Any:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.table import StaticTable

    catalog, slash, table = name.removeprefix(SCHEME).partition("/")
    with _explain_errors(name):
        if not name.startswith(SCHEME):
            return StaticTable.from_metadata(name)
        if not (catalog and slash and "." in table):
            raise BadInput(f"{name!r} does not name a table: it must be {FORM!r}.")
        return load_catalog(catalog).load_table(table)


def _explain_errors(name: str) -> AbstractContextManager[None]:
    """Name the table in errors of pyiceberg, pyarrow, fsspec or the library behind a catalog."""
    return explain_errors(f"the Iceberg table {name!r}")


class IcebergTable:
    """One snapshot of a table, with the attributes of a pyarrow dataset that `Fragments` needs; columns have their newest names."""

    def __init__(self, scan: Any) -> None:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import _read_deletes  # whose form depends on the version of the table

        name = scan.table_metadata.location
        if scan.row_filter != AlwaysTrue() or scan.limit is not None:
            raise BadInput(
                f"the scan of {name!r} has a filter or a limit: give the whole table, or scan.to_arrow() if it fits in memory."
            )
        with _explain_errors(name):
            self.schema = scan.projection().as_arrow()
            tasks = sorted(scan.plan_files(), key=lambda task: str(task.file.file_path))
            files = {file for task in tasks for file in task.delete_files}
            deleted = [_read_deletes(scan.io, file) for file in files]
        self.files = [IcebergFile(scan, task, deleted) for task in tasks]

    def get_fragments(self) -> list[IcebergFile]:
        """Return the data files; every rank gets them in the same order."""
        return self.files


class IcebergFile:
    """A data file with the names and types of the table's schema, without the rows that were deleted."""

    def __init__(self, scan: Any, task: Any, deleted: list[dict[str, Any]]) -> None:
        import pyarrow.dataset as ds

        self.io, self.file, self.path = scan.io, task.file, task.file.file_path
        self.fields = {field.name: field for field in scan.projection().fields}
        self.physical_schema = scan.projection().as_arrow()
        self.partition_expression = ds.scalar(True)  # the path of a file has no columns
        self.partition = _read_partition(scan.table_metadata, task.file)
        parts = [part[self.path].to_numpy() for part in deleted if self.path in part]
        self.deleted: NDArray[np.int64] = np.unique(np.concatenate([np.empty(0, np.int64), *parts]))

    def count_groups(self) -> tuple[int, ...]:
        """Return the number of rows of each row group that were not deleted."""
        ends = np.cumsum([0, *_count_rows(self._open())])
        return tuple(np.diff(ends - np.searchsorted(self.deleted, ends)).tolist())

    def count_missing(self, columns: set[str]) -> int:
        stored = self._find_columns(self._open())
        nulls = self.file.null_value_counts or {}
        found = 0
        for name in columns & set(self.fields):
            if name in stored:
                found += nulls.get(self.fields[name].field_id, 0)
            elif self._find_default(name) is None:
                found += self.file.record_count
        return found

    def read_group(self, group: int, size: int, columns: list[str]) -> Iterator[Any]:
        """Read the rows of a row group that were not deleted, in batches of at most `size` rows."""
        import pyarrow as pa

        file = self._open()
        stored = self._find_columns(file)
        first = sum(_count_rows(file)[:group])
        wanted = [stored[name] for name in columns if name in stored]
        schema = pa.schema([self.physical_schema.field(name) for name in columns])
        for batch in file.iter_batches(size, [group], wanted, use_threads=False):
            arrays = [
                batch.column(stored[field.name]).cast(field.type)
                if field.name in stored
                else pa.repeat(pa.scalar(self._find_default(field.name), field.type), batch.num_rows)
                for field in schema
            ]
            keep = np.ones(batch.num_rows, dtype=bool)
            low, high = np.searchsorted(self.deleted, [first, first + batch.num_rows])
            keep[self.deleted[low:high] - first] = False
            first += batch.num_rows
            yield pa.RecordBatch.from_arrays(arrays, schema=schema).filter(pa.array(keep))

    def _open(self) -> Any:
        import pyarrow.parquet as parquet

        if str(getattr(self.file.file_format, "value", self.file.file_format)).upper() != "PARQUET":
            raise BadInput(f"{self.path} is not a Parquet file: rewrite the table with Parquet files.")
        stream = self.io.new_input(self.path).open()
        return parquet.ParquetFile(stream, pre_buffer=False, buffer_size=PAGE_BYTES)

    def _find_columns(self, file: Any) -> dict[str, str]:
        """Return the file's own name of each column that it has: by number, or by name if the file has no numbers."""
        schema = file.schema_arrow
        numbers = {int(f.metadata[FIELD_ID]): f.name for f in schema if FIELD_ID in (f.metadata or {})}
        if not numbers:
            return {name: name for name in self.fields if name in schema.names}
        ids = {name: field.field_id for name, field in self.fields.items()}
        return {name: numbers[number] for name, number in ids.items() if number in numbers}

    def _find_default(self, name: str) -> Any:
        """Return the value of a column that the file lacks: that of its partition, else the default of the schema."""
        field = self.fields[name]
        return self.partition.get(field.field_id, field.initial_default)


def _read_partition(metadata: Any, file: Any) -> dict[int, Any]:
    """Return the values of columns that a table is partitioned by, by the number of the column."""
    from pyiceberg.transforms import IdentityTransform

    fields = metadata.specs()[file.spec_id].fields
    return {
        field.source_id: value
        for field, value in zip(fields, file.partition, strict=True)
        if isinstance(field.transform, IdentityTransform)
    }


def _count_rows(file: Any) -> list[int]:
    return [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
