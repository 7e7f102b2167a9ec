"""Contributions of columns to single predictions.

Cells are replaced, one column at a time, by cells of other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.column_statistics import distinct_rows
from cavity.common.namespaces import NUMPY
from cavity.common.tabular import Tabular
from cavity.common.types import Flags, Floats, Ints
from cavity.explain.partial_dependence import format_value
from cavity.explain.raw_rows import RawRows, find_columns
from cavity.tables.validation import Features

# features [n D] → log-probabilities [n C], or means and standard deviations [n 2]
Predict = Callable[[Floats], Floats]
# predictions of rows, and of the rows with other cells [n B ...] → contributions
Compare = Callable[[Floats, Floats], Floats]
# rows predicted for the importance of all columns with up to FEW classes
MOST_PREDICTED = 40_000
FEW = 30
# columns of a wide table whose importance is computed
MOST_TRIED = 1000
LOG_ODDS = "+0.69: twice the odds that a typical cell gives"
MOST_ODDS = 700.0  # largest log-odds; they stay finite if a probability is 0 or 1
SHOWN_ROWS = 3
SHOWN_COLUMNS = 6


@dataclass(frozen=True, eq=False)
class Contributions(Tabular):
    r"""Contributions of each column to the predictions of rows.

    For a classifier, the contribution of column j to class c is

        logit p(c | x) − logit mean_b p(c | x with the cell of row b in column j)

    over background rows b, with logit p = log p − log(1 − p). So +0.69 means that the
    row's own cell gives the class twice the odds that a typical cell gives. Unlike
    differences of probabilities, log-odds do not vanish where the model is sure. For a
    regressor, the contribution is the predicted mean minus the mean over b, in units
    of y.

    A column contributes 0 if the model ignores it, or if it is the same in all rows.
    Contributions do not add up to the prediction, because columns interact.

    Attributes
    ----------
    names : tuple of str
        Columns of the table.
    contributions : ndarray of shape (n_samples, n_features_in_, n_classes)
        Contributions; shape (n_samples, n_features_in_) for a regressor.
    prediction : ndarray of shape (n_samples, n_classes)
        Log-probabilities of the unchanged rows; for a regressor means, of shape
        (n_samples,).
    values : ndarray of shape (n_samples, n_features_in_)
        Cells of the rows as texts; empty for ignored columns.
    classes : ndarray of shape (n_classes,) or None
        Class labels; None for a regressor.
    """

    names: tuple[str, ...]
    contributions: Floats
    prediction: Floats
    values: NDArray[Any]
    classes: NDArray[Any] | None

    def of_prediction(self) -> Floats:
        """Return contributions to the predicted class of each row, or to its mean.

        Returns
        -------
        ndarray of shape (n_samples, n_features_in_)
            Contributions, in log-odds or in units of y.
        """
        if self.classes is None:
            return self.contributions

        predicted = self.prediction.argmax(1)
        return self.contributions[np.arange(len(predicted)), :, predicted]

    def _columns(self) -> dict[str, Any]:
        n, D = self.values.shape
        each = 1 if self.classes is None else len(self.classes)
        names = np.array(self.names, dtype=object)
        columns = {
            "row": np.repeat(np.arange(n), D * each),
            "column": np.tile(np.repeat(names, each), n),
            "cell": np.repeat(self.values.ravel(), each),
        }
        if self.classes is not None:
            columns["class"] = np.tile(self.classes, n * D)
        columns["contribution"] = self.contributions.ravel()
        return columns

    def _shown(self) -> dict[str, Any]:
        moved = self.of_prediction()[:SHOWN_ROWS]
        largest = np.argsort(-np.abs(moved), axis=1, kind="stable")[:, :SHOWN_COLUMNS]
        row = np.repeat(np.arange(len(moved)), largest.shape[1])
        column = largest.ravel()
        return {
            "row": row,
            "prediction": [self._describe(i) for i in row.tolist()],
            "column": [self.names[j] for j in column],
            "cell": self.values[row, column],
            "contribution": moved[row, column],
        }

    def _describe(self, i: int) -> str:
        if self.classes is None:
            return f"{self.prediction[i]:.4g}"

        best = int(self.prediction[i].argmax())
        return f"{self.classes[best]} ({np.exp(self.prediction[i, best]):.3f})"

    def _heading(self) -> str:
        what = f"predicted class, in log-odds ({LOG_ODDS})"
        if self.classes is None:
            what = "mean, in units of y"
        heading = f"largest contributions to the {what}"
        more = len(self.prediction) - SHOWN_ROWS
        if more > 0:
            heading += f" ({more} more rows)"
        return heading


def compute_log_odds(log_p: Floats) -> Floats:
    """Return log p_c − log Σ_{k≠c} p_k of log-probabilities [n C].

    The sum over the other classes is not 1 − p_c where p_c is near 1, so nothing
    cancels.
    """
    best = log_p.argmax(1)[:, None]
    rest = log_p.copy()
    np.put_along_axis(rest, best, -np.inf, axis=1)
    others = np.log1p(-np.exp(np.minimum(rest, 0.0)))
    np.put_along_axis(others, best, NUMPY.logsumexp(rest, 1)[:, None], axis=1)
    return np.asarray((log_p - others).clip(-MOST_ODDS, MOST_ODDS))


def replace_cells(
    X: Floats, owner: Ints, n_columns: int, background: Floats, predict: Predict
) -> Iterator[tuple[int, Floats, Flags]]:
    """Predict rows with the cells of each background row, one column at a time.

    Equal rows are predicted once. Yields, for each column that changes a row: its
    number, predictions [n B ...], and which rows it changes [n].
    """
    rows, row = distinct_rows(X)
    plain = predict(rows)
    for j in range(n_columns):
        used = owner == j
        if not used.any():
            continue

        cells, cell = distinct_rows(background[:, used])
        own = np.repeat(rows, len(cells), axis=0)
        changed = own.copy()
        changed[:, used] = np.tile(cells, (len(rows), 1))
        differs = (changed != own).any(1)
        if not differs.any():
            continue

        found = np.repeat(plain, len(cells), axis=0)
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
    """Compare predictions of rows with predictions after one column is replaced."""
    own = predict(rows.X)
    prediction = own[:, 0] if classes is None else own
    n, *C = prediction.shape
    D = len(rows.names)
    found = np.zeros((n, D, *C))
    for j, others, moved in replace_cells(rows.X, rows.owner, D, background, predict):
        found[moved, j] = compare(own, others)[moved]
    return Contributions(rows.names, found, prediction, format_cells(rows), classes)


def compute_importance(
    X: Floats,
    features: Features,
    predict: Predict,
    information: Compare,
    *,
    cost: int,
    relevance: Floats | None,
) -> Floats:
    """Return the mean `information` of each column in nats, [n_features_in_].

    Slow predictions (`cost`) use fewer rows. In a wide table only the columns of the
    largest `relevance` [n_features_in_] are tried; the others have 0.
    """
    names, owner = find_columns(features)
    if relevance is not None:
        relevant = np.argsort(-relevance, kind="stable")[:MOST_TRIED]
        owner = np.where(np.isin(owner, relevant), owner, -1)

    outputs = predict(X[:1]).shape[1]
    tried = len(np.unique(owner[owner >= 0]))
    room = MOST_PREDICTED // cost // tried * FEW // max(FEW, outputs)
    B = int(np.clip(room // 60, 4, 50))
    n = int(np.clip(room // B, 30, 100))
    rows = X[:n]
    background = X[-B:]

    own = predict(rows)
    found = np.zeros(len(names))
    for j, others, moved in replace_cells(rows, owner, len(names), background, predict):
        found[j] = information(own, others)[moved].sum() / len(rows)
    return np.maximum(found, 0.0)


def format_cells(rows: RawRows) -> NDArray[Any]:
    """Return the cells of rows as texts, [n columns]."""
    texts = np.full((len(rows.X), len(rows.names)), "", dtype=object)
    for j in set(rows.owner.tolist()):
        texts[:, j] = [format_value(cell) for cell in rows.cells(j)]
    return texts
