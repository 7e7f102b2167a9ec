"""Tables of the papers' experiments, from a folder or from OpenML."""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadInput

# name here → data set on OpenML (name, version)
OPENML = {
    "glass": ("glass", 1),
    "new_thyroid": ("new-thyroid", 1),
    "satellite": ("satimage", 1),
    "vehicle": ("vehicle", 1),
    "vowel": ("vowel", 2),
    "waveform": ("waveform-5000", 1),
    "mnist": ("mnist_784", 1),
}

# these files of scikit-learn have the rows of UCI, in the same order
SHIPPED = {"iris": "load_iris", "wine": "load_wine"}


class PaperTable(NamedTuple):
    """Numeric columns and one label per row."""

    X: NDArray[np.float64]  # [N D]
    y: NDArray[Any]  # [N]


def load(name: str, data_home: str | os.PathLike[str] | None = None) -> PaperTable:
    """Load a table by name: NAME.csv or NAME.csv.gz in `data_home` or in the folder
    $CAVITY_DATA, else from scikit-learn or OpenML.

    The files have a header row, numeric columns, and the label in the last column.
    """
    for folder in (data_home, os.environ.get("CAVITY_DATA")):
        for suffix in (".csv", ".csv.gz"):
            if folder and (path := Path(folder) / (name + suffix)).is_file():
                return read_csv(path)
    if name in SHIPPED:
        return _load_shipped(name)
    return _load_openml(name)


def read_csv(path: Path) -> PaperTable:
    """Read a comma-separated table with a header row and the label in the last column."""
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", newline="") as file:
        _, *rows = csv.reader(file)
    return PaperTable(
        np.array([row[:-1] for row in rows], dtype=np.float64),
        np.array([row[-1] for row in rows]),
    )


def _load_shipped(name: str) -> PaperTable:
    """A table of scikit-learn; labels count from 1, as in UCI's file of wine."""
    from sklearn import datasets

    found = getattr(datasets, SHIPPED[name])()
    return PaperTable(found.data, (found.target + 1).astype(str))


def _load_openml(name: str) -> PaperTable:
    if name not in OPENML:
        raise BadInput(
            f"table {name!r} is unknown: put {name}.csv into data_home= or the folder "
            f"$CAVITY_DATA. Known: {', '.join(OPENML)}."
        )
    from sklearn.datasets import fetch_openml

    title, version = OPENML[name]
    try:
        found = fetch_openml(title, version=version, as_frame=False, parser="liac-arff")
    except OSError as error:
        raise BadInput(
            f"table {name!r} is neither in data_home= nor in $CAVITY_DATA, and OpenML "
            f"cannot be reached: put {name}.csv there."
        ) from error
    return PaperTable(
        np.asarray(found.data, dtype=np.float64), np.asarray(found.target)
    )
