"""Bytes that libFuzzer makes of tables: they are read and prepared, or an error of ours
says why not.

    python tests/fuzz/fuzz_tables.py -max_total_time=120        (make fuzz)

The first byte says what kind of file the rest is. What it finds is left in a file
crash-...: fix the cause, and add the bytes to tests/unit/tables/test_preparation.py.
"""

import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

with atheris.instrument_imports(include=["cavity"]):
    from cavity import CavityError, Preparation
    from cavity.tables.files.table_files import open_table

from fuzz.corpus import make_folder, start

KINDS = ("t.csv", "t.parquet", "t.arrow", "t.tsv", "t.csv.gz")
PLACE = Path(tempfile.mkdtemp(prefix="cavity-fuzz-"))
COLUMNS = {
    "height": [1.5, None, 2.5, 4.0, 3.0, 2.0] * 3,
    "colour": ["red", "blue", None, "red", "green", "blue"] * 3,
    "kind": ["a", "b", "a", "b", "a", "b"] * 3,
}
TEXT = b'height,colour,kind\n1.5,"red, or\nblue",a\n,green,b\n"1,250.5",?,a\n2020-01-01,12%,b\n'


def once(content: bytes) -> None:
    if not content:
        return
    path = PLACE / KINDS[content[0] % len(KINDS)]
    path.write_bytes(content[1:])
    try:
        table = open_table(path)
        learnt = Preparation(
            target="kind" if "kind" in table.names else None
        ).fit_batches(table.chunks())
        for chunk in table.chunks():
            learnt.transform(chunk)
            if learnt.target is not None:
                learnt.labels(chunk)
    except CavityError:
        pass


def seeds() -> dict[str, bytes]:
    """A sound file of each kind, after the byte that names it."""
    table = pa.table(COLUMNS)
    (PLACE / "t.csv").write_bytes(TEXT)
    (PLACE / "t.tsv").write_bytes(TEXT.replace(b",", b"\t"))
    with pa.output_stream(str(PLACE / "t.csv.gz")) as stream:
        stream.write(TEXT)
    pq.write_table(table, PLACE / "t.parquet", row_group_size=10)
    feather.write_feather(table, str(PLACE / "t.arrow"), compression="uncompressed")
    return {
        name: bytes([i]) + (PLACE / name).read_bytes() for i, name in enumerate(KINDS)
    }


if __name__ == "__main__":
    start(once, make_folder("tables", seeds()))
