"""Small tables on which classes overlap, so that probabilities are neither 0 nor 1 and
an error would show.
"""

from typing import NamedTuple

import numpy as np
import pytest


class Table(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    new: np.ndarray  # rows to predict


def draw(classes, rows=60, columns=3, new=40, seed=0):
    """Overlapping blobs, one per class, in columns of different size."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(scale=1.2, size=(classes, columns))
    scale = np.array([1.0, 5.0, 0.3, 2.0, 1.0])[:columns]
    y = np.arange(rows) % classes
    X = centers[y] + rng.normal(size=(rows, columns))
    return Table(X * scale, y, 2 * rng.normal(size=(new, columns)) * scale)


@pytest.fixture(params=[2, 4], ids=["binary", "four classes"])
def table(request):
    return draw(request.param)


@pytest.fixture
def make_table():
    return draw


@pytest.fixture(params=["ep", "sep"])
def method(request):
    return request.param


@pytest.fixture
def three(make_table):
    return make_table(3)
