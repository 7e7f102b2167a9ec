"""Row numbers, ranked by a score."""

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
    """Row numbers, ranked by a score.

    Can be used in place of the array `rows`, for example as an index.

    Attributes
    ----------
    rows : ndarray of int of shape (n,)
        Row numbers, best first.
    scores : ndarray of shape (n,)
        Epistemic uncertainty in nats, or the probability of the row's label.
    """

    rows: Ints
    scores: Floats

    def _columns(self) -> dict[str, Any]:
        return {"row": self.rows, "score": self.scores}

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of `rows`, (n,)."""
        return self.rows.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.rows, dtype=dtype, copy=copy)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[int]:
        return iter(self.rows.tolist())

    def __getitem__(self, place: Any) -> Any:
        return self.rows[place]


@dataclass(frozen=True, eq=False)
class SuspectLabels(RankedRows):
    """Row numbers, ranked by the probability of the row's label without the row.

    Attributes
    ----------
    rows : ndarray of int of shape (n,)
        Row numbers, the most suspect first.
    scores : ndarray of shape (n,)
        Probabilities of the labels, by models that did not see the rows.
    labels : ndarray of shape (n,)
        Labels of the rows.
    suggested : ndarray of shape (n,)
        Most probable labels.
    """

    labels: NDArray[Any]
    suggested: NDArray[Any]

    def _columns(self) -> dict[str, Any]:
        return {
            **super()._columns(),
            "label": self.labels,
            "suggested": self.suggested,
        }


def rank(
    rows: Ints, scores: Floats, n: int | None, *, descending: bool = False
) -> RankedRows:
    """Return the first n rows by score; ties keep their order.

    Warns if there are fewer than n rows. Raises BadInput if a score is NaN.
    """
    unknown = np.flatnonzero(np.isnan(scores))
    if len(unknown):
        raise BadInput(
            f"{len(unknown)} rows cannot be ranked, such as row {unknown[0]} (counted "
            "from 0): their score is not a number. Look at their features and at "
            "predict_uncertainty, or leave these rows out."
        )

    if n is not None and n > len(rows):
        warnings.warn(
            f"n={n}, but there are only {len(rows)} rows: returning all of them.",
            UserWarning,
            stacklevel=3,
        )

    keys = -scores if descending else scores
    order = np.argsort(keys, kind="stable")[:n]
    return RankedRows(np.asarray(rows[order], dtype=np.int64), scores[order])
