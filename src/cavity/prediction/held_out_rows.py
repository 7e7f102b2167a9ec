"""Held-out rows with the probabilities of models that did not see them.

Does not load torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.scoring import BINS, Reliability, bin_events, bin_rows
from cavity.common.tabular import Tabular
from cavity.common.text_tables import format_label, list_names
from cavity.common.types import Floats, Ints
from cavity.errors import BadOption


@dataclass(frozen=True, eq=False)
class HeldOutRows(Tabular):
    """Held-out rows, and log-probabilities of models that did not see them.

    `estimate_` and `members_` are computed from these numbers. They contain no features.

    Attributes
    ----------
    rows : ndarray of int of shape (n,)
        Row numbers in the table given to `fit`, or in that of `eval_set`.
    labels : ndarray of shape (n,)
        Labels of the rows.
    weight : ndarray of shape (n,)
        Weights of the rows.
    group : ndarray of int of shape (n,)
        The same number for rows that were held out together: a group that you named, or
        rows with equal features.
    fold : ndarray of int of shape (n,)
        Part of the rows that the weights of the pool did not see.
    log_proba : ndarray of shape (n, n_classes)
        Log-probabilities of the pool, by weights that were fitted to the other folds.
    members : dict of str to ndarray of shape (n, n_classes)
        Log-probabilities of each classifier of the pool, the Gaussian process first.
    classes : ndarray of shape (n_classes,)
        Labels of the columns.
    how : str
        Where the rows come from, in words.
    of_table : bool
        Whether they are rows of the table given to `fit`.
    wider : float
        Factor of standard errors: above 1 if the rows were held out by folds of a small
        table, because another draw of its rows makes another model.
    """

    rows: Ints
    labels: NDArray[Any]
    weight: Floats
    group: Ints
    fold: Ints
    log_proba: Floats
    members: Mapping[str, Floats]
    classes: NDArray[Any]
    how: str
    of_table: bool = field(default=True)
    wider: float = field(default=1.0)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def proba(self) -> Floats:
        """Probabilities of the pool, (n, n_classes)."""
        return np.asarray(np.exp(self.log_proba))

    def reliability(self, bins: int = BINS, *, positive: Any = None) -> Reliability:
        """Compute how often the pool is right, as a function of its probability.

        Rows count by their weights, and rows of a group as one. Unlike those of new
        rows, the intervals grow by `wider`.

        Parameters
        ----------
        bins : int, default=10
            Number of equal bins of [0, 1].
        positive : label, optional
            Bin all rows by the probability of this class, instead of by the probability
            of their predicted class.

        Returns
        -------
        Reliability
            Mean probability, accuracy with an interval, and number of rows per bin.
        """
        options: Any = {"bins": bins, "unit": self.group, "wider": self.wider}
        if positive is None:
            y = np.searchsorted(self.classes, self.labels)
            return bin_rows(self.proba, y, self.weight, **options)

        names = self.classes.tolist()
        if positive not in names:
            raise BadOption(
                f"positive={positive!r} is not one of the classes {list_names(names)}."
            )

        p = self.proba[:, names.index(positive)]
        return bin_events(p, self.labels == positive, self.weight, **options)

    def _columns(self) -> dict[str, Any]:
        found = self._about_rows()
        for name, log_p in {"pool": self.log_proba, **self.members}.items():
            for label, column in zip(self.classes, log_p.T, strict=True):
                found[f"{name}: {format_label(label)}"] = column

        return found

    def _shown(self) -> dict[str, Any]:
        own = np.arange(len(self)), np.searchsorted(self.classes, self.labels)
        found = self._about_rows()
        for name, log_p in {"pool": self.log_proba, **self.members}.items():
            found[name] = np.exp(log_p[own])

        return found

    def _heading(self) -> str:
        return f"{self.how}: probabilities of the labels, by models without the rows"

    def _about_rows(self) -> dict[str, Any]:
        return {
            "row": self.rows,
            "label": self.labels,
            "weight": self.weight,
            "group": self.group,
            "fold": self.fold,
        }
