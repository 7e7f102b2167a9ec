"""Figure 3 in numbers: do inducing points of one class overlap, and are they close to
the class boundaries?

Rows keep the inducing points and the predicted classes on a grid as packed arrays.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.jobs import Row
from experiments.sets import BOX, split

GRID = 64  # points per side of the grid on which predicted classes are kept
CLOSE = 0.1  # lengthscales
TABLE_SIZES = (16, 64, 256)


def make_grid() -> NDArray[np.float64]:
    """The box of the toy problem as rows of a grid, left to right, then bottom to top."""
    across = np.linspace(-BOX, BOX, GRID)
    xx, yy = np.meshgrid(across, across)
    return np.column_stack([xx.ravel(), yy.ravel()])


def pack(values: NDArray[Any]) -> str:
    """An array as text for a cell of a CSV file."""
    return base64.b85encode(zlib.compress(values.tobytes(), 9)).decode()


def unpack(text: str, dtype: Any, *shape: int) -> NDArray[Any]:
    """The array that was packed."""
    return np.frombuffer(zlib.decompress(base64.b85decode(text)), dtype=dtype).reshape(
        *shape
    )


def overlap(Z: NDArray[np.float32]) -> float:
    """Fraction of the points, [C M 2], with another point of their class within a tenth
    of a lengthscale.
    """
    near = []
    for points in Z:
        gap = np.linalg.norm(points[:, None] - points[None], axis=-1)
        np.fill_diagonal(gap, np.inf)
        near.append(gap.min(1) < CLOSE)
    return float(np.mean(near))


def find_boundary(regions: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Grid points where the predicted class changes, [n 2]."""
    across = np.linspace(-BOX, BOX, GRID)
    edge = np.zeros_like(regions, dtype=bool)
    edge[:, 1:] |= regions[:, 1:] != regions[:, :-1]
    edge[1:] |= regions[1:] != regions[:-1]
    up, right = np.nonzero(edge)
    return np.column_stack([across[right], across[up]])


def boundary_distance(Z: NDArray[np.float32], boundary: NDArray[np.float64]) -> float:
    """Median distance between the points inside the box and the closest boundary."""
    points = Z.reshape(-1, 2)
    points = points[(np.abs(points) <= BOX).all(1)]
    if not len(points) or not len(boundary):
        return float("nan")
    return float(
        np.median(np.linalg.norm(points[:, None] - boundary[None], axis=-1).min(1))
    )


def fraction_outside(Z: NDArray[np.float32]) -> float:
    """Fraction of the points outside the box of the rows."""
    return float((np.abs(Z) > BOX).any(-1).mean())


def measure_points(row: Row) -> tuple[float, float, float]:
    """Overlap, median distance to the boundary, and fraction outside the box, for one
    fit.
    """
    Z = unpack(row["points"], np.float32, 3, int(row["inducing"]), 2)
    regions = unpack(row["regions"], np.uint8, GRID, GRID)
    return overlap(Z), boundary_distance(Z, find_boundary(regions)), fraction_outside(Z)


def measure_start(size: int) -> tuple[float, float]:
    """Overlap and distance to the true boundaries, for the rows at which the points
    start.
    """
    data = split("toy", 0)
    first = np.random.default_rng(0).choice(len(data.y), size, replace=False)
    nearest = np.linalg.norm(make_grid()[:, None] - data.X[None], axis=-1).argmin(1)
    labels = data.y[nearest].astype(np.uint8).reshape(GRID, GRID)
    Z = np.broadcast_to(data.X[first].astype(np.float32), (3, size, 2))
    return overlap(Z), boundary_distance(Z, find_boundary(labels))
