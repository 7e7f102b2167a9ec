"""A kernel on normal scores of the columns, for columns with long tails."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavity.common.column_statistics import Columns
from cavity.common.torch_namespace import TORCH
from cavity.errors import BadOption
from cavity.kernels.base import KERNELS, Kernel, formula_of, full_and_cross
from cavity.kernels.formulas import Knots, MappedFormula

Array = NDArray[np.float64]
KNOTS = 100  # most knots per column
FEW_VALUES = 10  # columns with at most this many distinct values keep them


@KERNELS.register
class Ranked(Kernel):
    """A kernel on normal scores: k(z, x) = base(z, s(x)), where s replaces each cell by the normal quantile of its rank.

    s is linear between the knots and constant outside them, so that a long tail or an outlier stays near the other rows.
    Inducing points z are on the scale of the scores. `rank_columns` finds the knots of a table.

    Parameters
    ----------
    base : Kernel
        The kernel on the scores.
    columns : sequence of int
        Columns that are replaced; all others keep their values.
    knots, scores : array of shape (K, len(columns))
        Values of each column in ascending order, and their scores. Columns with fewer than K values repeat the last one.

    Examples
    --------
    >>> import numpy as np
    >>> from cavity.kernels import RBF, Ranked
    >>> kernel = Ranked(RBF(), [0], np.array([[0.0], [1.0], [100.0]]), np.array([[-1.0], [0.0], [1.0]]))
    >>> kernel.score(np.array([[0.5, 7.0], [1e6, 7.0]])).tolist()
    [[-0.5, 7.0], [1.0, 7.0]]
    """

    place: Tensor  # [d]
    left: Tensor  # [d K-1]
    height: Tensor  # [d K-1]
    slope: Tensor  # [d K-1]
    last: Tensor  # [d]

    def __init__(self, base: Kernel, columns: Any, knots: Any, scores: Any) -> None:
        super().__init__()
        self.base = base
        self.columns = columns
        self.knots = knots
        self.scores = scores

    def bind(self, classes: int, columns: Columns) -> None:
        where, knots, scores = self._read(len(columns.spread))
        width = np.diff(knots, axis=0)
        slope = np.divide(np.diff(scores, axis=0), width, out=np.zeros_like(width), where=width > 0)
        buffers = {"left": knots[:-1].T, "height": scores[:-1].T, "slope": slope.T, "last": knots[-1]}
        self.register_buffer("place", torch.tensor(where))
        for name, value in buffers.items():
            self.register_buffer(name, torch.tensor(np.ascontiguousarray(value)))
        self.base.bind(classes, columns)

    def _read(self, n_columns: int) -> tuple[NDArray[np.int64], Array, Array]:
        where = np.asarray(self.columns, dtype=np.int64).reshape(-1)
        knots, scores = (np.asarray(a, dtype=np.float64) for a in (self.knots, self.scores))
        fits = (
            knots.ndim == 2
            and knots.shape == scores.shape
            and knots.shape[1] == len(where)
            and len(knots) > 1
        )
        inside = fits and 0 <= where.min(initial=0) and where.max(initial=0) < n_columns
        finite = inside and np.isfinite(knots).all() and np.isfinite(scores).all()
        if not finite or len(set(where)) < len(where) or (np.diff(knots, axis=0) < 0).any():
            raise BadOption(
                f"Ranked needs knots and scores of shape (K, {len(where)}), at least two of each column in ascending order, for "
                f"different columns of the {n_columns}: rank_columns makes them."
            )
        return where, knots, scores

    def settle(self, classes: int) -> None:
        self.base.settle(classes)

    def relevance(self, columns: Columns) -> np.ndarray | None:
        return self.base.relevance(columns)

    def weight(self) -> np.ndarray:
        return self.base.weight()

    def score(self, X: Any) -> Array:
        """Return rows with the scores of their cells.

        Parameters
        ----------
        X : array of shape (N, D)
            Rows in the units of the data.

        Returns
        -------
        ndarray of shape (N, D)
            Rows as `base` sees them.
        """
        out = np.array(X, dtype=np.float64)
        for j, d in enumerate(self.columns):
            out[:, d] = np.interp(out[:, d], self.knots[:, j], self.scores[:, j])
        return out

    def value(self, S: Any) -> Array:
        """Return the values of the data that have these scores; those beyond the last knots get its value.

        Parameters
        ----------
        S : array of shape (..., D)
            Rows as `base` sees them, such as inducing points.

        Returns
        -------
        ndarray of shape (..., D)
            Rows in the units of the data.
        """
        out = np.array(S, dtype=np.float64)
        for j, d in enumerate(self.columns):
            scores, first = np.unique(self.scores[:, j], return_index=True)
            out[..., d] = np.interp(out[..., d], scores, self.knots[first, j])
        return out

    def _score(self, X: Tensor) -> Tensor:
        return self._knots(TORCH).score(X.reshape(-1, X.shape[-1])).reshape(X.shape)  # type: ignore[no-any-return]

    def _knots(self, xp: Any) -> Knots:
        return Knots(*(xp.array(t) for t in (self.place, self.left, self.height, self.slope, self.last)))

    def formula(self, xp: Any) -> MappedFormula:
        return MappedFormula(formula_of(self.base, xp), self._knots(xp).score)

    def as_points(self, X: Tensor) -> Tensor:
        return self._score(X)

    def full(self, Z: Tensor) -> Tensor:
        return self.base.full(Z)

    def cross(self, Z: Tensor, X: Tensor) -> Tensor:
        return self.base.cross(Z, self._score(X))

    def diag(self, X: Tensor) -> Tensor:
        return self.base.diag(self._score(X))

    def pair(self, Z: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
        return full_and_cross(self.base, Z, self._score(X))


def rank_columns(X: Array, weight: Array) -> tuple[list[int], Array, Array] | None:
    """Find the columns with more than ten distinct values, their knots and scores: the arguments of `Ranked`.

    A score is the standard normal quantile of the weighted mid-rank; the scores of a column have mean 0 and variance 1.

    Parameters
    ----------
    X : array of shape (N, D)
        Rows in the units of the data.
    weight : array of shape (N,)
        Weights of the rows; a row of weight w counts as w rows.

    Returns
    -------
    tuple or None
        Columns, knots (K, d) and scores (K, d); None if no column has so many values.

    Examples
    --------
    >>> import numpy as np
    >>> from cavity.kernels import rank_columns
    >>> columns, knots, scores = rank_columns(np.exp(np.arange(21.0))[:, None], np.ones(21))
    >>> columns, knots.shape, abs(float(scores[10, 0])) < 1e-12
    ([0], (21, 1), True)
    """
    from scipy.special import ndtri

    where, found = [], []
    for d in range(X.shape[1]):
        values, place = np.unique(X[:, d], return_inverse=True)
        if len(values) <= FEW_VALUES:
            continue
        count = np.bincount(place.reshape(-1), weights=weight)
        rank = (np.cumsum(count) - count / 2) / count.sum()
        scores = ndtri(rank)
        mean = count @ scores / count.sum()
        scores = (scores - mean) / np.sqrt(count @ (scores - mean) ** 2 / count.sum())
        if len(values) > KNOTS:
            kept = np.unique(np.searchsorted(rank, np.linspace(rank[0], rank[-1], KNOTS)))
            values, scores = values[kept], scores[kept]
        where.append(d)
        found.append((values, scores))
    if not where:
        return None
    K = max(len(values) for values, _ in found)
    knots, scores = (
        np.stack([np.pad(pair[i], (0, K - len(pair[i])), "edge") for pair in found], 1) for i in (0, 1)
    )
    return where, knots, scores
