"""Columns of texts, encoded by their common parts."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cavity.rows.batches.source import Array
from cavity.rows.columns.arrow_buffers import find_present, to_places
from cavity.rows.columns.cells import EncodingContext, describe_missing, list_indicator, to_text

GRAM_SIZES = (2, 3, 4)
BLOCK = 1024  # texts that are encoded at once


class Text(NamedTuple):
    """Names, codes or free text, encoded by parts of the text, so that similar texts are near each other.

        features = b/|b| W        b: which of `grams` (character n-grams, or whole texts) the cell has

    With `missing`, one more column indicates which cells are missing.
    """

    name: str
    grams: tuple[str, ...]
    weights: str  # W [G k], float16 in base64
    examples: tuple[str, ...]  # frequent texts of the training rows
    missing: bool

    @property
    def features(self) -> list[str]:
        width = self.find_weights().shape[1]
        return [*(f"{self.name} text {i + 1}" for i in range(width)), *list_indicator(self)]

    def describe(self) -> str:
        few = ", ".join(map(shorten, self.examples[:2]))
        return f"text, {self.find_weights().shape[1]} features ({few}, ...){describe_missing(self)}"

    def encode(self, column: Any, context: EncodingContext) -> Array:
        text = to_text(column)
        lacks, coded = ~find_present(text), text.dictionary_encode()
        found = self.encode_texts([*coded.dictionary.to_pylist(), ""])
        X = found[np.where(lacks, len(found) - 1, to_places(coded.indices))]
        return context.mark_missing(self, X, lacks, "no text is set")

    def encode_texts(self, texts: Sequence[str]) -> Array:
        """Encode texts as [n, k]; sums of float16 are exact in float64, so each row has the same bits in any block."""
        W, blocks = self.find_weights(), range(0, len(texts), BLOCK)
        parts = (find_grams(texts[i : i + BLOCK], self.grams) for i in blocks)
        return np.concatenate([(B @ W) / find_lengths(B) for B in parts])

    def find_weights(self) -> Array:
        found = np.frombuffer(b64decode(self.weights, validate=True), "<f2")
        return found.reshape(len(self.grams), -1).astype(np.float64)


def shorten(text: str) -> str:
    return text if len(text) <= 24 else text[:23] + "…"


def normalize_text(text: str) -> str:
    """Return a text in lower case, with single spaces, also at its ends."""
    return f" {' '.join(text.lower().split())} "


def list_grams(text: str) -> set[str]:
    """Return the character n-grams of a text, and the whole text."""
    text = normalize_text(text)
    return {text} | {text[i : i + n] for n in GRAM_SIZES for i in range(len(text) - n + 1)}


def find_grams(texts: Sequence[str], grams: Sequence[str]) -> Array:
    """Return which n-grams each text contains, 0 or 1, [n G]."""
    place, B = {gram: j for j, gram in enumerate(grams)}, np.zeros((len(texts), len(grams)))
    for row, text in zip(B, texts, strict=True):
        row[[place[gram] for gram in list_grams(text) if gram in place]] = 1.0
    return B


def find_lengths(B: Array) -> Array:
    """Return the lengths of rows of 0 and 1, [n 1]; 1 for a row of zeros."""
    return np.asarray(np.sqrt(np.maximum(B.sum(1, keepdims=True), 1.0)))
