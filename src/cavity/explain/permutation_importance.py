"""Which columns matter: how much worse predictions become without the cells of a column, or of a group of columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.column_statistics import distinct_rows
from cavity.common.tabular import Tabular
from cavity.errors import BadInput, BadOption
from cavity.explain.raw_rows import find_column, find_columns
from cavity.rows.validation import Features

Array = NDArray[np.float64]
Losses = Callable[[Array], Array]  # features [n D] to one loss per row [n]
TREES, LEAST_LEAF = 50, 10  # of the forest that predicts a column from the others


@dataclass(frozen=True, eq=False)
class Importance(Tabular):
    """Importance of the columns of a table, or of groups of columns.

    Attributes
    ----------
    names : tuple of str
        Columns of the table, in its order; groups come where their first column is.
    importance : ndarray of shape (n_features_in_,), or one value per group
        By how much the mean loss increases, in nats, when the cells of a column are shuffled or, if `conditional`, when they are
        unknown and only the other columns tell about them. About 0 for a column that the predictions do not need; 0 for a column
        that the model ignores.
    standard_error : ndarray of the same shape
        Standard errors, over rows.
    loss : float
        Mean loss of the rows as they are.
    conditional : bool
        Whether cells were replaced given the other columns.
    """

    names: tuple[str, ...]
    importance: Array
    standard_error: Array
    loss: float
    conditional: bool = False

    def _columns(self) -> dict[str, Any]:
        """Return the columns of a table, the most important first."""
        order = np.argsort(-self.importance, kind="stable")
        names = [self.names[j] for j in order]
        return {
            "column": names,
            "importance": self.importance[order],
            "standard_error": self.standard_error[order],
        }

    def _heading(self) -> str:
        what = "unknown, given the others" if self.conditional else "shuffled"
        return f"importance: increase of the loss ({self.loss:.4f} nats per row) if a column is {what}"

    def __str__(self) -> str:
        width, lines = max(map(len, self.names)), zip(*self._columns().values(), strict=True)
        texts = (f"{name:<{width}}  {mean:+.4f} ± {error:.4f}" for name, mean, error in lines)
        return "\n".join([self._heading(), *texts])


class Draws(NamedTuple):
    n: int  # times
    rng: np.random.Generator
    conditional: bool = False


def permutation_importance(
    losses: Losses, X: Array, weight: Array, features: Features, draws: Draws, groups: Any = None
) -> Importance:
    """Replace the cells of each column or group of columns in turn, all their features together."""
    columns, owner = find_columns(features)
    chosen = read_groups(groups, columns)
    before, total = losses(X), weight.sum()
    importance, error = np.zeros(len(chosen)), np.zeros(len(chosen))
    seed = int(draws.rng.integers(2**31 - 1)) if draws.conditional else 0
    # the same for every column: fewer chances to differ
    orders = np.array([draws.rng.permutation(len(X)) for _ in range(draws.n)])
    for j, members in enumerate(chosen.values()):
        own = np.isin(owner, members)
        if not own.any():
            continue
        donors = find_similar(X, own, draws.n, seed) if draws.conditional and not own.all() else orders
        if not len(donors):
            continue
        found = np.array([losses(np.where(own, X[donor], X)) for donor in donors])
        more = (_unknown_loss(found, before) if draws.conditional else found.mean(0)) - before
        importance[j] = weight @ more / total
        error[j] = np.sqrt(weight**2 @ (more - importance[j]) ** 2) / total
    return Importance(tuple(chosen), importance, error, float(weight @ before / total), draws.conditional)


def _unknown_loss(found: Array, before: Array) -> Array:
    r"""Return the losses of rows whose cell is unknown, [n]: of the mean of their probabilities with B likely cells, found [B n].

    A mean over B cells instead of all is a worse prediction. To second order its increase is (1 + 1/B) of the true one.
    """
    B, least = len(found), found.min(0)
    mixed = least - np.log(np.exp(least - found).sum(0)) + math.log(B)
    return np.asarray(before + (mixed - before) * B / (B + 1))


def find_similar(X: Array, own: NDArray[np.bool_], n: int, seed: int) -> NDArray[np.int64]:
    """Return rows in which the cells of some features are expected to be alike, given all other features: at most n, [B n].

    A forest predicts the cells of each row by trees that did not see it; rows with the nearest predictions are alike. Equal rows
    are one row, which is not its own neighbour.
    """
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.neighbors import NearestNeighbors

    rows, place = distinct_rows(X)
    first = np.zeros(len(rows), dtype=np.int64)
    first[place] = np.arange(len(X))
    B = min(n, len(rows) - 1)
    if B < 1:
        return np.empty((0, len(X)), dtype=np.int64)
    cells = rows[:, own] / np.maximum(rows[:, own].std(0), 1e-300)
    forest = RandomForestRegressor(TREES, min_samples_leaf=LEAST_LEAF, oob_score=True, random_state=seed)
    forest.fit(rows[:, ~own], cells if cells.shape[1] > 1 else cells[:, 0])
    predicted = np.asarray(forest.oob_prediction_).reshape(len(rows), -1)
    near = NearestNeighbors(n_neighbors=B).fit(predicted).kneighbors(return_distance=False)  # [rows B]
    return np.asarray(first[near[place]].T)


def read_groups(groups: Any, columns: tuple[str, ...]) -> dict[str, list[int]]:
    """Return the numbers of the columns of each group; a column of no group is one of its own."""
    if groups is None:
        return {name: [j] for j, name in enumerate(columns)}
    if not isinstance(groups, Mapping):
        raise BadOption(
            f"groups={groups!r:.60} must be columns by the name of their group, such as {{'size': ['width', 'height']}}."
        )
    group_of: dict[int, str] = {}
    for name, members in groups.items():
        for column in [members] if isinstance(members, str | int) else members:
            j = find_column(column, columns)
            if j in group_of:
                raise BadInput(f"the column {columns[j]!r} is in two groups, {group_of[j]!r} and {name!r}.")
            group_of[j] = str(name)
    found: dict[str, list[int]] = {}
    for j, column in enumerate(columns):
        found.setdefault(group_of.get(j, column), []).append(j)
    return found
