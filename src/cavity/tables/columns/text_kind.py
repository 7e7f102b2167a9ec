"""Columns of texts, encoded by their common parts."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from cavity.common.types import Floats, Ints
from cavity.tables.columns.arrow_buffers import find_present, to_places
from cavity.tables.columns.cells import (
    EncodingContext,
    describe_missing,
    list_indicator,
    to_text,
)

GRAM_SIZES = (2, 3, 4)
BLOCK = 2**16  # letters that are encoded at once
OWN = 256  # letters that a text counts as, besides its own


class Text(NamedTuple):
    """Names, codes or free text, encoded so that similar texts are near each other.

        features = b/|b| W        b: 0 or 1, which of `grams` the cell contains

    `grams` are character n-grams or whole texts. With `missing`, one more column
    indicates missing cells.
    """

    name: str
    grams: tuple[str, ...]
    weights: str  # W [G k], float16 in base64
    examples: tuple[str, ...]  # frequent texts of the training rows
    missing: bool

    @property
    def features(self) -> list[str]:
        names = [f"{self.name} text {i + 1}" for i in range(self._width)]
        return names + list_indicator(self)

    @property
    def _width(self) -> int:
        return self.find_weights().shape[1]

    def describe(self) -> str:
        few = ", ".join(map(shorten, self.examples[:2]))
        return f"text, {self._width} features ({few}, ...){describe_missing(self)}"

    def encode(self, column: Any, context: EncodingContext) -> Floats:
        text = to_text(column)
        lacks = ~find_present(text)
        coded = text.dictionary_encode()
        found = self.encode_texts([*coded.dictionary.to_pylist(), ""])
        X = found[np.where(lacks, len(found) - 1, to_places(coded.indices))]
        return context.mark_missing(self, X, lacks, "no text is set")

    def encode_texts(self, texts: Sequence[str]) -> Floats:
        """Encode texts as [n, k].

        Sums of float16 are exact in float64, so a row has the same bits in any block.
        """
        W = self.find_weights()
        blocks = find_grams(texts, self.grams)
        return np.concatenate([(B @ W) / find_lengths(B) for B in blocks])

    def find_weights(self) -> Floats:
        found = np.frombuffer(b64decode(self.weights, validate=True), "<f2")
        return found.reshape(len(self.grams), -1).astype(np.float64)


def shorten(text: str) -> str:
    if len(text) <= 24:
        return text

    return text[:23] + "…"


def normalize_text(text: str) -> str:
    """Convert to lower case, with single spaces between words and at both ends."""
    return f" {' '.join(text.lower().split())} "


def spread_letters(lines: Sequence[str]) -> tuple[Ints, Ints]:
    """Return the letters of normalized texts, and the number of each letter's text.

    A line break ends each text.
    """
    joined = "\n".join([*lines, ""]).encode("utf-32-le")
    letters = np.frombuffer(joined, "<u4").astype(np.int64)
    return letters, np.cumsum(letters == ord("\n"))


def find_grams(texts: Sequence[str], grams: Sequence[str]) -> Iterator[Floats]:
    """Yield which n-grams or whole texts each text contains, 0 or 1, [n G], in blocks.

    The beginnings of n-grams are numbered, letters first; `after` has the number of a
    beginning with one more letter, or 0.
    """
    place = {gram: j for j, gram in enumerate(grams)}
    short = [gram for gram in grams if len(gram) <= max(GRAM_SIZES)]
    alphabet = sorted(set("".join(short)))
    begun = list(alphabet)
    for n in GRAM_SIZES:
        begun += sorted({gram[:n] for gram in short if len(gram) >= n})
    number = {part: i for i, part in enumerate(begun, 1)}
    letter = np.zeros(0x110000, np.int64)
    letter[[ord(c) for c in alphabet]] = np.arange(1, len(alphabet) + 1)
    letter[ord("\n")] = 0  # in no text
    after = np.zeros((len(begun) + 1, len(alphabet) + 1), np.int64)
    for part in begun[len(alphabet) :]:
        after[number[part[:-1]], number[part[-1]]] = number[part]
    column = np.array([-1, *(place.get(part, -1) for part in begun)])

    block = np.cumsum([len(text) + OWN for text in texts]) // BLOCK
    starts = np.flatnonzero(np.diff(block)) + 1
    for i, j in pairwise([0, *starts, len(texts)]):
        lines = [normalize_text(text) for text in texts[i:j]]
        B = np.zeros((len(lines), len(grams)))
        for row, line in zip(B, lines, strict=True):
            if line in place:
                row[place[line]] = 1.0

        letters, owner = spread_letters(lines)
        known = letter[letters]
        at = np.flatnonzero(known)
        found = known[at]
        for n in GRAM_SIZES:
            found = after[found, known[at + n - 1]]
            at = at[found > 0]
            found = found[found > 0]
            is_gram = column[found] >= 0
            B[owner[at[is_gram]], column[found[is_gram]]] = 1.0

        yield B


def find_lengths(B: Floats) -> Floats:
    """Return the lengths of rows of zeros and ones, [n 1]; 1 for a row of zeros."""
    return np.asarray(np.sqrt(np.maximum(B.sum(1, keepdims=True), 1.0)))
