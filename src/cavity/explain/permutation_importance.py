"""Which columns matter: how much worse predictions become without the cells of a
column, or of a group of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.common.tabular import Tabular
from cavity.common.types import Floats
from cavity.errors import BadInput, BadOption
from cavity.explain.raw_rows import find_column, find_columns
from cavity.tables.validation import Features

Losses = Callable[[Floats], Floats]  # features [n D] to one loss per row [n]


@dataclass(frozen=True, eq=False)
class Importance(Tabular):
    """Importance of the columns of a table, or of groups of columns.

    Attributes
    ----------
    names : tuple of str
        Columns of the table, in its order; groups come where their first column is.
    importance : ndarray of shape (n_features_in_,), or one value per group
        By how much the mean loss increases, in nats, when the cells of a column are
        shuffled. About 0 for a column that the predictions do not need; 0 for a column
        that the model ignores.
    standard_error : ndarray of the same shape
        Standard errors, over rows.
    loss : float
        Mean loss of the rows as they are.
    """

    names: tuple[str, ...]
    importance: Floats
    standard_error: Floats
    loss: float

    def _columns(self) -> dict[str, Any]:
        order = np.argsort(-self.importance, kind="stable")
        columns = {
            "importance": self.importance[order],
            "standard_error": self.standard_error[order],
        }
        return {"column": [self.names[j] for j in order], **columns}

    def _heading(self) -> str:
        return f"importance: increase of the loss ({self.loss:.4f} nats per row) if a column is shuffled"


def permutation_importance(
    losses: Losses,
    X: Floats,
    weight: Floats,
    features: Features,
    n_repeats: int,
    seed: int,
    groups: Any,
) -> Importance:
    """Shuffle the cells of each column or group of columns in turn, all their features
    together.
    """
    columns, owner = find_columns(features)
    chosen = read_groups(groups, columns)
    rng = np.random.default_rng(seed)
    before = losses(X)
    total = weight.sum()
    importance, error = np.zeros((2, len(chosen)))
    # the same for every column: fewer chances to differ
    orders = np.array([rng.permutation(len(X)) for _ in range(n_repeats)])
    for j, members in enumerate(chosen.values()):
        own = np.isin(owner, members)
        if not own.any():
            continue
        more = (
            np.mean([losses(np.where(own, X[order], X)) for order in orders], axis=0)
            - before
        )
        importance[j] = weight @ more / total
        error[j] = np.sqrt(weight**2 @ (more - importance[j]) ** 2) / total
    return Importance(tuple(chosen), importance, error, float(weight @ before / total))


def read_groups(groups: Any, columns: tuple[str, ...]) -> dict[str, list[int]]:
    """Return the numbers of the columns of each group; a column of no group is one of
    its own.
    """
    if groups is None:
        return {name: [j] for j, name in enumerate(columns)}
    if not isinstance(groups, Mapping):
        raise BadOption(
            f"groups={groups!r:.60} must be columns by the name of their group, such "
            f"as {{'size': ['width', 'height']}}."
        )
    group_of: dict[int, str] = {}
    for name, members in groups.items():
        for column in [members] if isinstance(members, str | int) else members:
            j = find_column(column, columns)
            if j in group_of:
                raise BadInput(
                    f"the column {columns[j]!r} is in two groups, {group_of[j]!r} and "
                    f"{name!r}."
                )
            group_of[j] = str(name)
    found: dict[str, list[int]] = {}
    for j, column in enumerate(columns):
        found.setdefault(group_of.get(j, column), []).append(j)
    return found
