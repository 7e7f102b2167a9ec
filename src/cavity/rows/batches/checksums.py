"""Checksums of rows: they show that a source changed between two runs, or differs between two ranks."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from cavity.common.column_statistics import GOLDEN, Words, fold_bits, hash_rows, mix_bits
from cavity.rows.batches.source import Piece

MASK = (1 << 64) - 1


def hash_labels(values: list[Any]) -> Words:
    """Return one word per label; equal numbers of different types have equal words."""
    return np.array([_hash_label(value) for value in values], dtype=np.uint64)


def hash_column(values: Any) -> Words:
    """Return one word per row: equal values have equal words."""
    distinct, place = np.unique(values, return_inverse=True)
    return hash_labels(distinct.tolist())[place.reshape(-1)]


def _hash_label(value: Any) -> int:
    if isinstance(value, bool | int | float) and value == int(value):
        value = int(value)
    text = f"{'text' if isinstance(value, str) else 'number'} {value!s}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def sum_rows(piece: Piece, labels: Words) -> int:
    """Return the sum of one word per row, modulo 2⁶⁴. `labels` holds the words of the rows' labels.

    A word depends on the row's number, columns, label and weight; the sum depends neither on the order of the rows nor on
    how they are cut into pieces or sections.
    """
    rows = mix_bits(hash_rows(piece.X) + piece.index.astype(np.uint64) * GOLDEN)
    rows = mix_bits(rows ^ labels)
    if piece.weight is not None:
        rows = mix_bits(rows + fold_bits(np.array(piece.weight, dtype=np.float64).view(np.uint64)))
    return int(rows.sum(dtype=np.uint64))
