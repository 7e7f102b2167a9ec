"""The table of docs/results/scale.md on passes over many rows, from the rows of benchmarks/rows.py."""

from __future__ import annotations

from pathlib import Path

from experiments.comparison import read_csv
from experiments.tables import markdown


def rows_table(results: Path) -> str:
    """One pass over Parquet files."""
    lines = []
    for row in read_csv(results / "rows.csv"):
        cores = int(row["ranks"]) * int(row["threads"])
        on_cores = f"{cores} core{'s' if cores > 1 else ''}, {row['machine']}"
        where = "GPU" if row["device"] == "cuda" else on_cores
        lines.append(
            [
                where,
                f"{int(row['rows']):,}",
                row["M"],
                f"{int(row['batch']):,}",
                f"{float(row['pass_s']):.0f}",
                f"{float(row['rows_per_s']):,.0f}",
                f"{float(row['rows_per_cpu_s']):,.0f}",
                f"{float(row['peak_mb']):,.0f}",
                f"{float(row['read_mb']):,.0f}",
                f"{float(row['nll']):.3f}",
                f"{float(row['load']):.0f}",
            ]
        )
    head = "on, rows, M, batch, seconds, rows per second, per CPU second, peak MB, MB read, NLL, load".split(
        ", "
    )
    return markdown(head, lines)
