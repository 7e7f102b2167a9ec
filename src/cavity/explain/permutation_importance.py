"""Permutation importance of columns, or of groups of columns."""

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

# features [n D] → one loss per row [n]
Losses = Callable[[Floats], Floats]


@dataclass(frozen=True, eq=False)
class Importance(Tabular):
    """Importance of the columns of a table, or of groups of columns.

    Attributes
    ----------
    names : tuple of str
        Columns of the table in its order. A group has the place of its first column.
    importance : ndarray of shape (n_features_in_,), or (n_groups,)
        Increase of the mean loss in nats if a column is shuffled. It is about 0 for a
        column that predictions do not need, and 0 for one that the model ignores.
    standard_error : ndarray of the same shape
        Standard errors over rows.
    loss : float
        Mean loss of the unchanged rows.
    """

    names: tuple[str, ...]
    importance: Floats
    standard_error: Floats
    loss: float

    def _columns(self) -> dict[str, Any]:
        order = np.argsort(-self.importance, kind="stable")
        return {
            "column": [self.names[j] for j in order],
            "importance": self.importance[order],
            "standard_error": self.standard_error[order],
        }

    def _heading(self) -> str:
        return (
            f"importance: increase of the loss ({self.loss:.4f} nats per row) if a "
            "column is shuffled"
        )


def permutation_importance(
    losses: Losses,
    X: Floats,
    weight: Floats,
    features: Features,
    *,
    n_repeats: int,
    seed: int,
    groups: Any,
) -> Importance:
    """Shuffle each column or group of columns in turn, with all its features."""
    columns, owner = find_columns(features)
    chosen = read_groups(groups, columns)
    # the same orders for every column: differences between columns are less noisy
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(X)) for _ in range(n_repeats)]

    before = losses(X)
    total = weight.sum()
    importance = np.zeros(len(chosen))
    error = np.zeros(len(chosen))
    for j, members in enumerate(chosen.values()):
        own = np.isin(owner, members)
        if not own.any():
            continue

        after = [losses(np.where(own, X[order], X)) for order in orders]
        more = np.mean(after, axis=0) - before
        importance[j] = weight @ more / total
        error[j] = np.sqrt(weight**2 @ (more - importance[j]) ** 2) / total

    return Importance(tuple(chosen), importance, error, float(weight @ before / total))


def read_groups(groups: Any, columns: tuple[str, ...]) -> dict[str, list[int]]:
    """Return column numbers by group; other columns are groups of their own."""
    if groups is None:
        return {name: [j] for j, name in enumerate(columns)}
    if not isinstance(groups, Mapping):
        raise BadOption(
            f"groups={groups!r:.60} must be a dict of columns by the name of their "
            "group, such as {'size': ['width', 'height']}."
        )

    group_of: dict[int, str] = {}
    for name, members in groups.items():
        single = isinstance(members, str | int)
        for column in [members] if single else members:
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
