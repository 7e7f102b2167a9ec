"""Columns of many different texts: names, codes, free text.

A text is encoded by its character n-grams, without looking at labels: texts with common
parts are near each other, even if the training rows did not have them.

The held-out log loss of a quick model of this column alone decides whether the n-grams
are used, or the column is one-hot or ignored.
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
MOST_LETTERS = 300  # letters of a text that are searched for n-grams
WIDTHS = (16, 64)  # numbers of features to choose from
MOST_ROWS = 2500  # rows that decide; up to twice as many
LEAST_ROWS = 100
FOLDS = 3
MOST_CLASSES = 20
# weight of the class frequencies in a level, in rows: the best of these is used
PRIOR_ROWS = (0.25, 1.0, 4.0)
SCALE = 4.0  # of features with unit variance together, for logistic regression
LEAST_GAIN = 0.01  # share of the usual loss that another use must gain
LEAST_ERRORS = 3.0  # and in standard errors of that gain
EXAMPLES = 8


class Sample:
    """Texts and labels of every `step`-th row of a table that comes in batches."""

    def __init__(self) -> None:
        self.step = 1
        self.labels: list[str | None] = []
        self.texts: dict[str, list[str | None]] = {}

    def add(self, columns: Mapping[str, Any], labels: Any, first: int) -> None:
        """Add consecutive rows; `first` is the number of the first one."""
        kept = np.arange(-first % self.step, len(labels), self.step)
        place = import_pyarrow().array(kept)
        self.labels += to_text(labels).take(place).to_pylist()
        for name, column in columns.items():
            cells = to_text(column).take(place).to_pylist()
            self.texts.setdefault(name, []).extend(cells)

        while len(self.labels) > 2 * MOST_ROWS:
            self.step *= 2
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
            (text, label)
            for text, label in zip(cells, self.labels, strict=True)
            if text is not None and label is not None
        ]
        y = _to_classes([label for _, label in pairs])
        rows = np.flatnonzero(y >= 0)
        each = rows[:, None].astype(np.float64)
        fold = choose_folds(each, y[rows], FOLDS, 0, stratified=True)
        # a class with a single row has no fold
        rows = rows[fold >= 0]
        fold = fold[fold >= 0]
        y = y[rows]
        if len(y) < LEAST_ROWS or not y.any():
            return usual

        found = [pairs[i][0] for i in rows]
        count = Counter(found)
        texts = sorted(count, key=lambda text: (-count[text], text))
        rank = {text: i for i, text in enumerate(texts)}
        place = np.array([rank[text] for text in found])
        level = np.zeros_like(place)
        if isinstance(usual, Category):
            level = place

        before = _level_losses(level, y, fold)
        best: Column | Ignored = usual
        least = np.inf
        for text, E in learn_similar_texts(name, texts, missing):
            losses = _text_losses(E[place], y, fold)
            if _is_better(losses, before) and losses.mean() < least:
                best = text
                least = losses.mean()

        return best


def to_label_cells(y: Any, n: int) -> Any | None:
    """Return labels as an Arrow array; None without one label per row.

    The fit itself raises the error then.
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
    r"""Learn how to encode texts by their n-grams, once per width, without labels.

        A = b/|b| · idf = U S Vᵀ      W = idf · V
        idf = log(number of texts / texts with the n-gram)

    Also returns the encoded texts.
    """
    count = _count_grams([normalize_text(text[:MOST_LETTERS]) for text in texts])
    shared = [gram for gram, n in count.items() if 1 < n < len(texts)]
    grams = sorted(shared, key=lambda gram: (-count[gram], gram))[:MOST_GRAMS]
    if not grams:
        return []

    idf = np.log(len(texts) / np.array([count[gram] for gram in grams]))
    B = np.concatenate([*find_grams(texts, grams)])
    lengths = find_lengths(B)
    A = B / lengths * idf
    V = np.linalg.eigh(A.T @ A)[1][:, ::-1]

    found = []
    for width in WIDTHS:
        first = V[:, :width]
        unit = np.sqrt((A @ first).var(0).sum())
        if unit > 0:
            W = idf[:, None] * first / unit
            stored = b64encode(W.astype("<f2").tobytes()).decode()
            text = Text(name, tuple(grams), stored, tuple(texts[:EXAMPLES]), missing)
            found.append((text, (B @ text.find_weights()) / lengths))

    return found


def _count_grams(lines: Sequence[str]) -> Counter[str]:
    """Count the texts that contain each n-gram or are equal to each whole text.

    Only n-grams in two or more texts are counted.
    """
    count = Counter(line for line in lines if len(line) not in GRAM_SIZES)
    joined = "\n".join(lines)
    letters, owner = spread_letters(lines)
    at = np.flatnonzero(letters != ord("\n"))
    number = letters[at]  # of the n-gram that begins there
    for n in GRAM_SIZES:
        inside = letters[at + n - 1] != ord("\n")
        at = at[inside]
        number = number[inside]
        pair = number << 21 | letters[at + n - 1]  # letters of Unicode have 21 bits
        _, first, number = np.unique(pair, return_index=True, return_inverse=True)

        in_text = np.sort(number * len(lines) + owner[at])  # faster than np.unique
        distinct = in_text[np.diff(in_text, prepend=-1) > 0]
        n_texts = np.bincount(distinct // len(lines))
        shared = n_texts > 1
        starts = at[first[shared]].tolist()
        for i, k in zip(starts, n_texts[shared].tolist(), strict=True):
            count[joined[i : i + n]] += k

        # a longer n-gram is shared only if its beginning is
        at = at[shared[number]]
        number = number[shared[number]]

    return count


def _is_better(losses: Floats, before: Floats) -> bool:
    gain = before - losses
    error = gain.std() / np.sqrt(len(gain))
    return bool(gain.mean() > max(LEAST_GAIN * before.mean(), LEAST_ERRORS * error))


def _to_classes(labels: list[str]) -> Ints:
    """Return classes 0, 1, ... by frequency; −1: too few rows for the folds.

    Many different numbers become quarters.
    """
    names, code, count = np.unique(labels, return_inverse=True, return_counts=True)
    if len(names) > MOST_CLASSES:
        try:
            value = np.array(labels, dtype=np.float64)
            return np.searchsorted(np.quantile(value, [0.25, 0.5, 0.75]), value)
        except ValueError:
            pass

    rank = np.empty(len(names), dtype=np.int64)
    rank[np.argsort(-count, kind="stable")] = np.arange(len(names))
    rank = np.minimum(rank, MOST_CLASSES - 1)
    rank[count < FOLDS] = -1
    return rank[code]


def _level_losses(place: Ints, y: Ints, fold: Ints) -> Floats:
    """Return log losses per row, predicted from the row's level in other folds."""
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
    """Return log losses per row, predicted by logistic regression on other folds."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import PredefinedSplit, cross_val_predict

    model = LogisticRegression(max_iter=40, tol=1e-3)
    folds = PredefinedSplit(fold)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few steps are enough to compare
        X = SCALE * E
        log_p = cross_val_predict(model, X, y, cv=folds, method="predict_log_proba")

    _, column = np.unique(y, return_inverse=True)
    return -log_p[np.arange(len(y)), column]
