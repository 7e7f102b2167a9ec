"""Columns of many different texts: names, codes, free text.

Held-out rows choose how they are used.

A text is encoded by the character n-grams that it contains: texts with common parts are
near each other, also those that the training rows did not have. This does not look at
labels. Whether it is used, or the column is one-hot or ignored, is chosen by the
held-out log loss of a quick model of this column alone.
"""

from __future__ import annotations

import warnings
from base64 import b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cavity.common.types import Floats, Ints
from cavity.tables.arrow_tables import import_pyarrow, to_plain
from cavity.tables.columns.arrow_buffers import from_array
from cavity.tables.columns.cells import to_text
from cavity.tables.columns.column_kinds import Category, Column, Ignored
from cavity.tables.columns.text_kind import (
    GRAM_SIZES,
    Text,
    find_grams,
    find_lengths,
    normalize_text,
    spread_letters,
)
from cavity.tables.splitting import choose_folds

MOST_GRAMS = 500
MOST_LETTERS = 300  # of a text, in which n-grams are looked for
WIDTHS = (16, 64)  # numbers of features to choose from
MOST_ROWS = 2500  # that choose; up to twice as many
LEAST_ROWS = 100
FOLDS = 3
MOST_CLASSES = 20
# of class frequencies, for the rows of a level: the best of these
PRIOR_ROWS = (0.25, 1.0, 4.0)
SCALE = 4.0  # of features that have unit variance together, for logistic regression
# share of the loss by which another use must be better than the usual one
LEAST_GAIN = 0.01
LEAST_ERRORS = 3.0  # standard errors of that gain
EXAMPLES = 8


class Sample:
    """Texts of some columns, and labels, of every `step`-th row of a table that comes
    in batches.
    """

    def __init__(self) -> None:
        self.step = 1
        self.labels: list[str | None] = []
        self.texts: dict[str, list[str | None]] = {}

    def add(self, columns: Mapping[str, Any], labels: Any, first: int) -> None:
        """Add rows, the first of which has the number `first`."""
        place = import_pyarrow().array(
            np.arange(-first % self.step, len(labels), self.step)
        )
        self.labels += to_text(labels).take(place).to_pylist()
        for name, column in columns.items():
            self.texts.setdefault(name, []).extend(
                to_text(column).take(place).to_pylist()
            )
        while len(self.labels) > 2 * MOST_ROWS:
            self.step = 2 * self.step
            self.labels = self.labels[::2]
            self.texts = {name: cells[::2] for name, cells in self.texts.items()}

    def choose(
        self, name: str, usual: Category | Ignored, missing: bool
    ) -> Column | Ignored:
        """Return the best way to use a column of many texts: as usual, or as `Text`."""
        cells = self.texts.get(name, [])
        if len(cells) != len(self.labels):  # no labels, or the first batch had no texts
            return usual
        pairs = [
            (t, c)
            for t, c in zip(cells, self.labels, strict=True)
            if t is not None and c is not None
        ]
        y = _to_classes([label for _, label in pairs])
        rows = np.flatnonzero(y >= 0)
        fold = choose_folds(
            rows[:, None].astype(np.float64), y[rows], FOLDS, 0, stratified=True
        )
        # a class of one row has no fold
        rows = rows[fold >= 0]
        fold = fold[fold >= 0]
        found = [pairs[i][0] for i in rows]
        y = y[rows]
        if len(y) < LEAST_ROWS or not y.any():
            return usual
        count = Counter(found)
        texts = sorted(count, key=lambda text: (-count[text], text))
        rank = {text: i for i, text in enumerate(texts)}
        place = np.array([rank[text] for text in found])
        before = _level_losses(
            place if isinstance(usual, Category) else np.zeros_like(place), y, fold
        )
        similar = learn_similar_texts(name, texts, missing)
        options = [(_text_losses(E[place], y, fold), text) for text, E in similar]
        pays = [
            (losses, text) for losses, text in options if _is_better(losses, before)
        ]
        if pays:
            return min(pays, key=lambda option: option[0].mean())[1]
        return usual


def to_label_cells(y: Any, n: int) -> Any | None:
    """Return labels as an Arrow array; None if there are none, or not one per row: the
    fit itself refuses these.
    """
    try:
        labels = np.asarray(to_plain(y, "y")).reshape(-1)
    except ValueError:  # lists of different lengths
        return None
    if labels.dtype.kind == "f":
        labels = labels.astype(np.float64)
    if y is not None and len(labels) == n:
        return from_array(labels)
    return None


def learn_similar_texts(
    name: str, texts: Sequence[str], missing: bool
) -> list[tuple[Text, Floats]]:
    r"""Learn from different texts how to encode their n-grams, once per width, without
    labels; also encode them.

    A = b/|b| · idf = U S Vᵀ      W = idf · V      idf = log(number of texts / texts with the n-gram)
    """
    count = _count_grams([normalize_text(text[:MOST_LETTERS]) for text in texts])
    shared = [gram for gram, n in count.items() if 1 < n < len(texts)]
    grams = sorted(shared, key=lambda gram: (-count[gram], gram))[:MOST_GRAMS]
    if not grams:
        return []
    idf = np.log(len(texts) / np.array([count[gram] for gram in grams]))
    B = np.concatenate([*find_grams(texts, grams)])
    A = B / find_lengths(B) * idf
    V = np.linalg.eigh(A.T @ A)[1][:, ::-1]
    scale = [np.sqrt((A @ V[:, :width]).var(0).sum()) for width in WIDTHS]
    weights = [
        idf[:, None] * V[:, :width] / unit
        for width, unit in zip(WIDTHS, scale, strict=True)
        if unit > 0
    ]
    stored = [b64encode(W.astype("<f2").tobytes()).decode() for W in weights]
    found = [
        Text(name, tuple(grams), W, tuple(texts[:EXAMPLES]), missing) for W in stored
    ]
    return [(text, (B @ text.find_weights()) / find_lengths(B)) for text in found]


def _count_grams(lines: Sequence[str]) -> Counter[str]:
    """Count the texts that contain each n-gram, if it is in two or more, and those that
    are each whole text.
    """
    count = Counter(line for line in lines if len(line) not in GRAM_SIZES)
    joined = "\n".join(lines)
    (letters, owner) = spread_letters(lines)
    at = np.flatnonzero(letters != ord("\n"))
    number = letters[at]  # of the n-gram that begins there
    for n in GRAM_SIZES:
        inside = letters[at + n - 1] != ord("\n")
        at = at[inside]
        number = number[inside]
        pair = number << 21 | letters[at + n - 1]  # letters of Unicode have 21 bits
        _, first, number = np.unique(pair, return_index=True, return_inverse=True)
        in_text = np.sort(number * len(lines) + owner[at])  # faster than np.unique
        n_texts = np.bincount(in_text[np.diff(in_text, prepend=-1) > 0] // len(lines))
        shared = n_texts > 1
        starts = at[first[shared]].tolist()
        counts = n_texts[shared].tolist()
        count.update(
            {joined[i : i + n]: k for i, k in zip(starts, counts, strict=True)}
        )
        at = at[shared[number]]
        number = number[shared[number]]
    return count


def _is_better(losses: Floats, before: Floats) -> bool:
    gain = before - losses
    error = gain.std() / np.sqrt(len(gain))
    return bool(gain.mean() > max(LEAST_GAIN * before.mean(), LEAST_ERRORS * error))


def _to_classes(labels: list[str]) -> Ints:
    """Return classes 0, 1, ... by frequency, or quarters of many numbers; −1 for
    classes with too few rows for the folds.
    """
    names, code, count = np.unique(labels, return_inverse=True, return_counts=True)
    if len(names) > MOST_CLASSES:
        try:
            value = np.array(labels, dtype=np.float64)
            return np.searchsorted(np.quantile(value, [0.25, 0.5, 0.75]), value)
        except ValueError:
            pass
    rank = np.empty(len(names), dtype=np.int64)
    rank[np.argsort(-count, kind="stable")] = np.minimum(
        np.arange(len(names)), MOST_CLASSES - 1
    )
    rank[count < FOLDS] = -1
    return rank[code]


def _level_losses(place: Ints, y: Ints, fold: Ints) -> Floats:
    """Return the log loss of each row, predicted by the class frequencies of its level
    in the other folds.
    """
    loss = np.empty((len(PRIOR_ROWS), len(y)))
    n = int(place.max()) + 1
    C = int(y.max()) + 1
    for i in range(FOLDS):
        rest = fold != i
        mine = fold == i
        count = np.bincount(place[rest] * C + y[rest], minlength=n * C).reshape(n, C)
        prior = (count.sum(0) + 1) / (count.sum() + C)
        count = count[place[mine]]
        for k, alpha in enumerate(PRIOR_ROWS):
            p = (count + alpha * prior) / (count.sum(1, keepdims=True) + alpha)
            loss[k, mine] = -np.log(p[np.arange(len(p)), y[mine]])
    return np.asarray(loss[loss.mean(1).argmin()])


def _text_losses(E: Floats, y: Ints, fold: Ints) -> Floats:
    """Return the log loss of each row, predicted by logistic regression of the other
    folds.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import PredefinedSplit, cross_val_predict

    model = LogisticRegression(max_iter=40, tol=1e-3)
    folds = PredefinedSplit(fold)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few steps are enough to compare
        log_p = cross_val_predict(
            model, SCALE * E, y, cv=folds, method="predict_log_proba"
        )
    return -log_p[np.arange(len(y)), np.unique(y, return_inverse=True)[1]]
