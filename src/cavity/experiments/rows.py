"""Result files: a CSV row for each finished fit (for each moment, where a fit is a curve)."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cavity.errors import BadFile
from cavity.experiments.jobs import Key

Row = dict[str, Any]

TEXTS = frozenset(
    (
        "dataset",
        "method",
        "inducing",
        "settings",
        "commit",
        "versions",
        "points",
        "regions",
        "curve",
        "note",
        "device",
    )
)
COLUMNS = (
    "dataset", "split", "method", "inducing", "M", "flip",
    "nll", "error", "ece", "brier", "seconds", "epochs", "repairs", "unseen", "epsilon", "log_evidence",
    "seed", "settings", "commit", "versions", "device",
)  # fmt: skip
CURVE = (*COLUMNS, "moment", "passes", "expected_log_p", "last")
POINTS = (*COLUMNS, "points", "regions")
COMPARED = (*COLUMNS, "predict_rows_per_second", "peak_mb", "model_kb", "curve", "note")


def key_of(row: Row) -> Key:
    """The key of the job that made a row."""
    return (
        row["dataset"],
        int(row["split"]),
        row["method"],
        row["inducing"],
        float(row["flip"]),
        row["settings"],
    )


class File:
    """Rows on disk. One process writes; a line that a crash cut off is dropped at the next start."""

    def __init__(self, path: Path, columns: tuple[str, ...] = COLUMNS) -> None:
        self.path, self.columns = path, columns

    def read(self) -> list[Row]:
        """Every whole row; none where there is no file."""
        if not self.path.exists():
            return []
        text = self.path.read_text(encoding="utf-8")
        whole = text if text.endswith("\n") else text[: text.rfind("\n") + 1]
        head, *lines = list(csv.reader(io.StringIO(whole))) or [[]]
        if head and set(head) - set(self.columns):
            strange = ", ".join(sorted(set(head) - set(self.columns)))
            raise BadFile(
                f"{self.path} has columns that are not ours ({strange}): move it away, or name another --results."
            )
        return [_numbers(dict.fromkeys(self.columns, "") | dict(zip(head, line, strict=True))) for line in lines
                if len(line) == len(head)]  # fmt: skip

    def finished(self) -> set[Key]:
        """Keys of jobs whose result is there; of a curve, its last moment."""
        return {key_of(row) for row in self.read() if row.get("last", 1) == 1}

    def mend(self) -> None:
        """Drop what a crash left behind: a cut line, the beginning of a curve."""
        rows, done = self.read(), self.finished()
        if self.path.exists():
            self._replace([row for row in rows if key_of(row) in done])

    def add(self, rows: Iterable[Row]) -> None:
        """Append, in one write that reaches the disk before this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        begins = not self.path.exists() or self.path.stat().st_size == 0
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(self._text(rows, head=begins))
            file.flush()
            os.fsync(file.fileno())

    def sort(self) -> None:
        """The order that makes two files easy to compare."""
        rows = self.read()
        if rows:
            self._replace(sorted(rows, key=_order))

    def _replace(self, rows: list[Row]) -> None:
        """Written aside and renamed, so that there is always a whole file."""
        aside = self.path.with_suffix(".tmp")
        aside.write_text(self._text(rows, head=True), encoding="utf-8", newline="")
        os.replace(aside, self.path)

    def _text(self, rows: Iterable[Row], head: bool) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, restval="", extrasaction="ignore", lineterminator="\n")
        if head:
            writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
        return text.getvalue()


def _order(row: Row) -> tuple[Any, ...]:
    size = float(row["inducing"].rstrip("%") or 0)
    return (row["dataset"], row["flip"], row["method"], size, row["split"], row.get("moment") or 0)


def _cell(value: Any) -> Any:
    """Empty for nothing; ten significant digits are more than any score has."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.10g}" if isinstance(value, float) else value


def _numbers(row: dict[str, str]) -> Row:
    return {
        name: value if name in TEXTS else float(value) if value else math.nan for name, value in row.items()
    }
