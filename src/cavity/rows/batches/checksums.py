"""Words for the values of a column."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from cavity.common.column_statistics import Words


def hash_column(values: Any) -> Words:
    """Return one word per row: equal values have equal words, also numbers of different types."""
    distinct, place = np.unique(values, return_inverse=True)
    words = np.array([_hash_value(value) for value in distinct.tolist()], dtype=np.uint64)
    return words[place.reshape(-1)]


def _hash_value(value: Any) -> int:
    if isinstance(value, bool | int | float) and value == int(value):
        value = int(value)
    text = f"{'text' if isinstance(value, str) else 'number'} {value!s}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
