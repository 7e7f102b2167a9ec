"""Jobs and the rows that they write: one job is one fit, one row of a CSV file is its
result.

A fit that is recorded as a curve writes one row per recorded moment.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import cavity
from cavity.errors import BadFile

Key = tuple[str, int, str, str, float, str]
Row = dict[str, Any]

ROOT = Path(__file__).parents[1]
PACKAGE = Path(cavity.__file__).parent
NOT_FITTING = ("cli", "report")  # folders of the package on which no fit depends

TEXT_COLUMNS = frozenset(
    "dataset method inducing settings commit versions points regions device".split()
)
COLUMNS = (
    "dataset", "split", "method", "inducing", "M", "flip",
    "nll", "error", "ece", "brier", "seconds", "epochs", "repairs", "unseen",
    "epsilon", "log_evidence",
    "seed", "settings", "commit", "versions", "device",
)  # fmt: skip
CURVE_COLUMNS = (*COLUMNS, "moment", "passes", "expected_log_p", "last")
CONFIDENCE_COLUMNS = (*COLUMNS, "confidence")
POINTS_COLUMNS = (*COLUMNS, "points", "regions")
REGRESSION_COLUMNS = (
    "dataset", "split", "method", "inducing", "flip", "moment", "seconds", "r2", "last",
    "seed", "settings", "commit", "versions", "device",
)  # fmt: skip
DRAWS_COLUMNS = (
    "dataset", "split", "method", "inducing", "flip", "moment", "x",
    "f1", "f2", "f3", "mean", "sd", "seconds", "last",
    "seed", "settings", "commit", "versions", "device",
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """One fit, fully specified.

    `options` are arguments of GPClassifier in addition to those of the method.
    """

    kind: str  # a key of `fits.KINDS`
    dataset: str
    split: int  # number of the split, and random seed of the fit
    method: str  # a key of `methods.METHODS`
    inducing: str  # "10%", "200", or "" for the default
    flip: float = 0.0  # fraction of training labels that are redrawn
    options: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def n_inducing(self) -> int | float | None:
        """The argument `n_inducing`; None for the default."""
        if not self.inducing:
            return None
        return (
            float(self.inducing[:-1]) / 100
            if self.inducing.endswith("%")
            else int(self.inducing)
        )

    @property
    def settings(self) -> str:
        """Fingerprint of everything except the split.

        A row with another fingerprint is not a result of this job.
        """
        parts = [
            self.kind,
            self.dataset,
            self.method,
            self.inducing,
            self.flip,
            sorted(self.options.items()),
        ]
        return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:10]

    @property
    def key(self) -> Key:
        """What identifies the rows of this job."""
        return (
            self.dataset,
            self.split,
            self.method,
            self.inducing,
            float(self.flip),
            self.settings,
        )

    def __str__(self) -> str:
        size = f" M={self.inducing}" if self.inducing else ""
        return f"{self.dataset} split {self.split} {self.method}{size}"


def key_of(row: Row) -> Key:
    """Key of the job that wrote a row."""
    return (
        row["dataset"],
        int(row["split"]),
        row["method"],
        row["inducing"],
        float(row["flip"]),
        row["settings"],
    )


# ---------------------------------------------------------------- where a row comes from
class Context(NamedTuple):
    """What a worker process needs in addition to its job."""

    data_home: str | None = None
    device: str = "cpu"
    threads: int = 1
    commit: str = ""


def identify(job: Job) -> Row:
    """The columns that identify a job."""
    return {
        "dataset": job.dataset,
        "split": job.split,
        "method": job.method,
        "inducing": job.inducing,
        "flip": float(job.flip),
        "settings": job.settings,
    }


def stamp(job: Job, context: Context) -> Row:
    """The columns that identify a job and its origin.

    In a curve only the last row has the origin.
    """
    origin = {
        "seed": job.split,
        "commit": context.commit,
        "versions": versions(),
        "device": context.device,
    }
    return identify(job) | origin


@cache
def current_commit() -> str:
    """Commit of the code, with `+` if files have changed since; a digest of the sources
    outside a git clone.
    """
    if "CAVITY_COMMIT" in os.environ:
        return os.environ["CAVITY_COMMIT"]
    return find_commit(ROOT, str(PACKAGE), "experiments") or "code-" + code_digest()


def find_commit(folder: Path, *paths: str) -> str:
    """Commit of a clone, with `+` if the files of the paths have changed since; an
    empty string outside a clone.
    """
    git: dict[str, Any] = {
        "capture_output": True,
        "text": True,
        "check": True,
        "timeout": 30,
        "cwd": folder,
    }
    try:
        described = subprocess.run(
            ["git", "rev-parse", "--short=9", "HEAD"], **git
        ).stdout.strip()
        changed = subprocess.run(
            ["git", "status", "--porcelain", "--", *paths], **git
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
    return described + ("+" if changed else "")


@cache
def code_digest() -> str:
    """Digest of every source file on which a fit depends."""
    total = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] not in NOT_FITTING:
            total.update(path.read_bytes())
    return total.hexdigest()[:9]


@cache
def versions() -> str:
    """Versions of everything on which the numbers may depend."""
    import numpy
    import scipy
    import torch

    return (
        f"cavity {cavity.__version__} code {code_digest()}; Python "
        f"{platform.python_version()}; "
        f"torch {torch.__version__}; numpy {numpy.__version__}; scipy "
        f"{scipy.__version__}"
    )


def describe_version(row: Row) -> str:
    """Return the version that computed a row: "cavity 0.1.0"."""
    version = str(row["versions"]).partition(" code ")[0]
    if version.startswith("cavity "):
        return version
    return "a version that was not recorded"


# ---------------------------------------------------------------- result files
class ResultFile:
    """Rows on disk.

    One process writes; a line that a crash cut off is dropped at the next start.
    """

    def __init__(self, path: Path, columns: tuple[str, ...] = COLUMNS) -> None:
        self.path = path
        self.columns = columns

    def read(self) -> list[Row]:
        """Every complete row; an empty list if the file does not exist."""
        if not self.path.exists():
            return []
        text = self.path.read_text(encoding="utf-8")
        complete = text if text.endswith("\n") else text[: text.rfind("\n") + 1]
        head, *lines = list(csv.reader(io.StringIO(complete))) or [[]]
        unknown = ", ".join(sorted(set(head) - set(self.columns)))
        if unknown:
            raise BadFile(
                f"{self.path} has unknown columns ({unknown}): move the file away, or "
                f"pass another --results."
            )
        blank = dict.fromkeys(self.columns, "")
        return [
            _parse(blank | dict(zip(head, line, strict=True)))
            for line in lines
            if len(line) == len(head)
        ]

    def finished(self) -> set[Key]:
        """Keys of the jobs that have a result.

        A curve is finished when its last row is there.
        """
        return {key_of(row) for row in self.read() if row.get("last", 1) == 1}

    def repair(self) -> None:
        """Drop what a crash left behind: a line that is cut off, a curve without its
        end.
        """
        rows = self.read()
        done = self.finished()
        if self.path.exists():
            self._replace([row for row in rows if key_of(row) in done])

    def append(self, rows: Iterable[Row]) -> None:
        """Append rows in one write, and sync it to disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not self.path.exists() or self.path.stat().st_size == 0
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(self._text(rows, head=is_new))
            file.flush()
            os.fsync(file.fileno())

    def sort(self) -> None:
        """Sort the rows, so that two files are easy to compare."""
        rows = self.read()
        if rows:
            self._replace(sorted(rows, key=_order))

    def _replace(self, rows: list[Row]) -> None:
        """Write a temporary file and rename it, so that there is always a complete
        file.
        """
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(self._text(rows, head=True), encoding="utf-8", newline="")
        os.replace(temporary, self.path)

    def _text(self, rows: Iterable[Row], head: bool) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(
            text, self.columns, restval="", extrasaction="ignore", lineterminator="\n"
        )
        if head:
            writer.writeheader()
        writer.writerows(
            {name: _format(value) for name, value in row.items()} for row in rows
        )
        return text.getvalue()


def _order(row: Row) -> tuple[Any, ...]:
    size = float(row["inducing"].rstrip("%") or 0)
    return (
        row["dataset"],
        row["flip"],
        row["method"],
        size,
        row["split"],
        row.get("moment") or 0,
    )


def _format(value: Any) -> Any:
    """A value as text: empty for missing values, ten significant digits for floats."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.10g}" if isinstance(value, float) else value


def _parse(row: dict[str, str]) -> Row:
    parsed: Row = {}
    for name, value in row.items():
        if name in TEXT_COLUMNS:
            parsed[name] = value
        else:
            parsed[name] = float(value or "nan")
    return parsed
