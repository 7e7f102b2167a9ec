"""Tables as people have them, by collection: raw and large ones with an index, and the
numeric ones.

Four fifths of the rows train: a permutation by the seed. This file does not import
cavity, so it runs with the package of any tree.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.int64]

TRAIN_SHARE = 0.8
FEW_ROWS = 1600  # below, a table takes all seeds; larger ones the first
NUMERIC_ROWS = 4000  # most training rows of a numeric table
FLIGHTS = "flights_nyc2013"
COLLECTIONS = ("raw", "large", "numeric")
USES = ("choose", "report")


class Entry(NamedTuple):
    """A table of a collection."""

    collection: str
    name: str
    rows: int
    use: str  # "choose": defaults were chosen on it; "report": it decided nothing


class Split(NamedTuple):
    """Columns and labels of a table, and the numbers of its training and test rows."""

    X: Any  # a data frame
    y: Labels
    train: Labels
    test: Labels

    @property
    def n_classes(self) -> int:
        return int(self.y.max()) + 1


def data_folder() -> Path:
    """Return the folder of the data, $CAVITY_DATA."""
    return Path(os.environ.get("CAVITY_DATA", "."))


def list_tables(collection: str, use: str = "all") -> list[Entry]:
    """Return the tables of a collection, the largest first."""
    if collection == "numeric":
        from experiments.sets import FURTHER, UCI

        found = [
            Entry(collection, name, len(_read_csv(name)), "choose")
            for name in (*UCI, *FURTHER)
        ]
    else:
        index = json.loads(
            (data_folder() / collection / "index.json").read_text(encoding="utf-8")
        )
        found = [
            Entry(collection, name, about["rows"], about.get("use", "report"))
            for name, about in index.items()
        ]
    return sorted((e for e in found if use in ("all", e.use)), key=lambda e: -e.rows)


def _read_csv(name: str) -> Any:
    import pandas as pd

    paths = [data_folder() / f"{name}.csv{end}" for end in ("", ".gz")]
    return pd.read_csv(next((path for path in paths if path.exists()), paths[0]))


def read_table(collection: str, name: str) -> tuple[Any, Labels]:
    """Return the columns of a table, and its labels as numbers."""
    import pandas as pd

    if name == FLIGHTS:
        with np.load(data_folder() / f"{name}.npz", allow_pickle=False) as file:
            return pd.DataFrame(file["x"].astype(float)).add_prefix("x"), file[
                "y"
            ].astype(np.int64)
    if collection == "numeric":
        frame = _read_csv(name)
        target = "class"
    else:
        frame = pd.read_csv(data_folder() / collection / f"{name}.csv.gz")
        target = "target"
    labels = frame.pop(target).astype(str).to_numpy()
    return frame, np.unique(labels, return_inverse=True)[1].astype(np.int64)


def split_table(
    X: Any, y: Labels, seed: int, train_rows: int = 0, test_rows: int = 0
) -> Split:
    """Split a table; 0 stands for all rows.

    Test rows of a class that no training row has are left out.
    """
    order = np.random.default_rng(seed).permutation(len(y))
    cut = int(TRAIN_SHARE * len(y))
    train = order[:cut][: train_rows or None]
    test = order[cut:][: test_rows or None]
    return Split(X, y, train, test[np.isin(y[test], y[train])])
