"""What moves the prediction of single rows: the change when one column has the cells of
other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.column_statistics import distinct_rows
from cavity.common.tabular import Tabular
from cavity.common.types import Flags, Floats, Ints
from cavity.explain.partial_dependence import format_value
from cavity.explain.raw_rows import RawRows, find_columns
from cavity.tables.validation import Features

# features [n D] to log-probabilities [n C], or to means and standard deviations [n 2]
Predict = Callable[[Floats], Floats]
Compare = Callable[
    [Floats, Floats], Floats
]  # predictions of rows and, [n B ...], of rows with other cells
MOST_PREDICTED = (
    40_000  # rows for the importance of all columns, with up to FEW classes; then fewer
)
FEW = 30
MOST_TRIED = 1000  # columns of a wide table whose importance is computed
SHOWN_ROWS = 3
SHOWN_COLUMNS = 6


@dataclass(frozen=True, eq=False)
class Contributions(Tabular):
    r"""How each column moves the predictions of rows.

    For a classifier, the contribution of column j to class c is

        log p(c | x) − log mean_b p(c | x with the cell of row b in column j)

    over background rows b, in nats: exp of it is the factor by which the row's own cell
    makes the class more probable than a cell of a random row would. For a regressor, it
    is the predicted mean minus the mean over b, in units of y. It is 0 for a column
    that the model ignores, or that is the same in all rows. Contributions do not add
    up, because columns interact.

    Attributes
    ----------
    names : tuple of str
        Columns of the table.
    contributions : ndarray of shape (n, n_features_in_, n_classes), or (n,
    n_features_in_) for a regressor
        The contributions.
    prediction : ndarray of shape (n, n_classes), or (n,)
        Log-probabilities, or means, of the rows as they are.
    values : ndarray of shape (n, n_features_in_)
        Cells of the rows as texts; empty for ignored columns.
    classes : ndarray or None
        Class labels; None for a regressor.
    """

    names: tuple[str, ...]
    contributions: Floats
    prediction: Floats
    values: NDArray[Any]
    classes: NDArray[Any] | None

    def of_prediction(self) -> Floats:
        """Return the contributions to the predicted class of each row, or to its mean.

        Returns
        -------
        ndarray of shape (n, n_features_in_)
            Nats, or units of y.
        """
        if self.classes is None:
            return self.contributions
        return self.contributions[
            np.arange(len(self.prediction)), :, self.prediction.argmax(1)
        ]

    def _columns(self) -> dict[str, Any]:
        n, D = self.values.shape
        each = self.contributions.size // max(1, n * D)
        if self.classes is None:
            labels = {}
        else:
            labels = {"class": np.tile(self.classes, n * D)}
        return {
            "row": np.repeat(np.arange(n), D * each),
            "column": np.tile(np.repeat(np.array(self.names, dtype=object), each), n),
            "cell": np.repeat(self.values.ravel(), each),
            **labels,
            "contribution": self.contributions.ravel(),
        }

    def _shown(self) -> dict[str, Any]:
        lines = []
        for i, moved in enumerate(self.of_prediction()[:SHOWN_ROWS]):
            for j in np.argsort(-np.abs(moved), kind="stable")[:SHOWN_COLUMNS]:
                lines.append(
                    (i, self._describe(i), self.names[j], self.values[i, j], moved[j])
                )
        names = "row", "prediction", "column", "cell", "contribution"
        return dict(zip(names, zip(*lines, strict=True), strict=True))

    def _describe(self, i: int) -> str:
        if self.classes is None:
            return f"{self.prediction[i]:.4g}"
        best = int(self.prediction[i].argmax())
        return f"{self.classes[best]} ({np.exp(self.prediction[i, best]):.3f})"

    def _heading(self) -> str:
        what = (
            "mean, in units of y"
            if self.classes is None
            else "predicted class, in nats"
        )
        more = len(self.prediction) - SHOWN_ROWS
        return f"largest contributions to the {what}{f' ({more} more rows)' if more > 0 else ''}"


def replace_cells(
    X: Floats, owner: Ints, n_columns: int, background: Floats, predict: Predict
) -> Iterator[tuple[int, Floats, Flags]]:
    """Predict rows with the cells of every background row, one column at a time; equal
    rows are predicted once.

    Yields the number of each column that can change a row, the predictions [n B ...],
    and the rows that it changes, [n].
    """
    rows, row = distinct_rows(X)
    plain = predict(rows)
    for j in range(n_columns):
        used = owner == j
        if not used.any():
            continue
        cells, cell = distinct_rows(background[:, used])
        own, found = (np.repeat(part, len(cells), axis=0) for part in (rows, plain))
        changed = own.copy()
        changed[:, used] = np.tile(cells, (len(rows), 1))
        differs = (changed != own).any(1)
        if differs.any():
            found[differs] = predict(changed[differs])
            pair = row[:, None] * len(cells) + cell  # [n B]
            yield j, found[pair], differs[pair].any(1)


def compute_contributions(
    rows: RawRows,
    background: Floats,
    predict: Predict,
    compare: Compare,
    classes: NDArray[Any] | None,
) -> Contributions:
    """Compare the predictions of rows with those after one column is replaced."""
    own = predict(rows.X)
    found = np.zeros(
        (len(own), len(rows.names), *(() if classes is None else (len(classes),)))
    )
    for j, others, moved in replace_cells(
        rows.X, rows.owner, len(rows.names), background, predict
    ):
        found[moved, j] = compare(own, others)[moved]
    if classes is None:
        prediction = own[:, 0]
    else:
        prediction = own
    return Contributions(rows.names, found, prediction, format_cells(rows), classes)


def compute_importance(
    X: Floats,
    features: Features,
    predict: Predict,
    information: Compare,
    cost: int,
    relevance: Floats | None,
) -> Floats:
    """Return the mean `information` of each column, [n_features_in_], in nats; of few
    rows if predictions would take long.

    In a wide table only the columns of the largest `relevance`, [n_features_in_], are
    tried; the others have 0.
    """
    names, owner = find_columns(features)
    if relevance is not None:
        owner = np.where(
            np.isin(owner, np.argsort(-relevance, kind="stable")[:MOST_TRIED]),
            owner,
            -1,
        )
    outputs = predict(X[:1]).shape[1]
    tried = len(np.unique(owner[owner >= 0]))
    room = MOST_PREDICTED // cost // tried * FEW // max(FEW, outputs)
    B = int(np.clip(room // 60, 4, 50))
    X, background = X[: int(np.clip(room // B, 30, 100))], X[-B:]
    own = predict(X)
    found = np.zeros(len(names))
    for j, others, moved in replace_cells(X, owner, len(names), background, predict):
        found[j] = information(own, others)[moved].sum() / len(X)
    return np.maximum(found, 0.0)


def format_cells(rows: RawRows) -> NDArray[Any]:
    texts = np.full((len(rows.X), len(rows.names)), "", dtype=object)
    for j in set(rows.owner.tolist()):
        texts[:, j] = [format_value(cell) for cell in rows.cells(j)]
    return texts
