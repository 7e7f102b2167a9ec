"""Rows in an order, with the numbers that it follows from."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.tabular import Tabular
from cavity.common.types import Floats, Ints
from cavity.errors import BadInput


@dataclass(frozen=True, eq=False)
class RankedRows(Tabular):
    """Row numbers in an order, with the score of each.

    It can be used as the array `rows`, for example as an index.

    Attributes
    ----------
    rows : ndarray of int of shape (n,)
        Row numbers.
    scores : ndarray of shape (n,)
        Leave-one-out probability of the row's label, or epistemic uncertainty in nats.
    """

    rows: Ints
    scores: Floats

    def _columns(self) -> dict[str, Any]:
        return {"row": self.rows, "score": self.scores}

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.rows, dtype=dtype)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[int]:
        return iter(self.rows.tolist())

    def __getitem__(self, place: Any) -> Any:
        return self.rows[place]


def rank(
    rows: Ints, scores: Floats, n: int | None, *, descending: bool = False
) -> RankedRows:
    """Order rows by score; ties keep their order.

    Of fewer than n rows all are returned, with a warning.

    Raises BadInput if a score is NaN.
    """
    unknown = np.flatnonzero(np.isnan(scores))
    if len(unknown):
        raise BadInput(
            f"{len(unknown)} rows cannot be ranked, such as row {unknown[0]} (counted "
            f"from 0): their score is not a number. "
            "Look at these rows' features, and at predict_uncertainty of them; leave "
            "them out."
        )
    if n is not None and n > len(rows):
        warnings.warn(
            f"n={n}, but there are {len(rows)} rows: all are returned.",
            UserWarning,
            stacklevel=3,
        )
    order = np.argsort(-scores if descending else scores, kind="stable")[:n]
    return RankedRows(np.asarray(rows[order], dtype=np.int64), scores[order])
