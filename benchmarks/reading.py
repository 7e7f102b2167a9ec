"""What each rank reads of a Parquet file in a shuffled pass: decoded rows, and CPU seconds.

Generated rows with 16 features. The ranks run one after another in this process, without a model. A rank that decoded all rows
and kept its own would take as long as a single rank. "order" is a rank without rows: it computes the order and reads nothing.

    python benchmarks/reading.py [--rows 1000000] [--group 100000] [--worlds 1 2 4]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from cavity.rows.batches.shuffle import shard_range
from cavity.rows.batches.stream import Stream
from cavity.rows.files import arrow_source

COLUMNS, BATCH = 16, 1000


class Counted(arrow_source.Fragments):
    """Count the decoded rows."""

    decoded = 0

    def _tables(self, *where: Any) -> Iterator[Any]:
        for batch in super()._tables(*where):
            Counted.decoded += batch.num_rows
            yield batch


def write_parquet(path: Path, rows: int, group: int) -> None:
    """Write generated rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    columns = {f"x{j}": rng.standard_normal(rows) for j in range(COLUMNS)}
    pq.write_table(pa.table({**columns, "label": np.arange(rows) % 5}), path, row_group_size=group)


def measure(path: Path, keep: range, rows: int) -> tuple[float, float]:
    """Fraction of the rows that was decoded in one pass, and its CPU seconds."""
    Counted.decoded, arrow_source.Fragments = 0, Counted  # type: ignore[misc]
    source = arrow_source.Arrow(path, "label")
    data = Stream(source, np.arange(5), np.ones(5), rows, COLUMNS, torch.float64, torch.device("cpu"))
    start = time.process_time()
    for _ in data._replace(mine=keep).batches(BATCH, torch.Generator().manual_seed(0)):
        pass
    return Counted.decoded / rows, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--group", type=int, default=100_000)
    parser.add_argument("--worlds", type=int, nargs="+", default=[1, 2, 4])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write_parquet(path, args.rows, args.group)
        print(f"{args.rows} rows in row groups of {args.group}, {COLUMNS} features, batches of {BATCH}")
        print("ranks   fraction decoded per rank      seconds per rank")
        for world in args.worlds:
            got = [measure(path, shard_range(args.rows, rank, world), args.rows) for rank in range(world)]
            decoded, seconds = (" ".join(f"{x:.2f}" for x in column) for column in zip(*got, strict=True))
            print(f"{world:5d}   {decoded:28}   {seconds}", flush=True)
        print(f"order   {'0.00':28}   {measure(path, range(0), args.rows)[1]:.2f}")


if __name__ == "__main__":
    main()
