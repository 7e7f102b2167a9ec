"""Figure 3 in numbers: do inducing points of a class lie on top of each other, are they near the boundaries?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cavity.experiments import fits
from cavity.experiments.rows import Row
from cavity.report.problems import BOX

CLOSE = 0.1  # lengthscales
SIZES = (16, 64, 256)


def overlap(Z: NDArray[np.float32]) -> float:
    """Share of the points, [C M 2], that have another one of their class within a tenth of a lengthscale."""
    near = []
    for points in Z:
        gap = np.linalg.norm(points[:, None] - points[None], axis=-1)
        np.fill_diagonal(gap, np.inf)
        near.append(gap.min(1) < CLOSE)
    return float(np.mean(near))


def boundary(regions: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Points of the grid where the predicted class changes, [n 2]."""
    across = np.linspace(-BOX, BOX, fits.GRID)
    sideways, upwards = regions[:, 1:] != regions[:, :-1], regions[1:] != regions[:-1]
    edge = np.zeros_like(regions, dtype=bool)
    edge[:, 1:] |= sideways
    edge[1:] |= upwards
    up, right = np.nonzero(edge)
    return np.column_stack([across[right], across[up]])


def distance(Z: NDArray[np.float32], edges: NDArray[np.float64]) -> float:
    """Median distance of points inside the box from the nearest boundary."""
    points = Z.reshape(-1, 2)
    points = points[(np.abs(points) <= BOX).all(1)]
    if not len(points) or not len(edges):
        return float("nan")
    return float(np.median(np.linalg.norm(points[:, None] - edges[None], axis=-1).min(1)))


def outside(Z: NDArray[np.float32]) -> float:
    """Share of the points that left the box of the rows."""
    return float((np.abs(Z) > BOX).any(-1).mean())


def line(row: Row) -> tuple[float, float, float]:
    """Overlap, median distance to the boundary, share outside, of one fit."""
    Z = fits.unpack(row["points"], np.float32, 3, int(row["inducing"]), 2)
    regions = fits.unpack(row["regions"], np.uint8, fits.GRID, fits.GRID)
    return overlap(Z), distance(Z, boundary(regions)), outside(Z)


def at_start(size: int) -> tuple[float, float]:
    """The same of the rows that the points start from: overlap, and distance to the true boundaries (of the labels)."""
    from cavity.experiments.sets import split

    data = split("toy", 0)
    first = np.random.default_rng(0).choice(len(data.y), size, replace=False)
    nearest = np.linalg.norm(fits.plane()[:, None] - data.X[None], axis=-1).argmin(1)
    labels = data.y[nearest].astype(np.uint8).reshape(fits.GRID, fits.GRID)
    Z = np.broadcast_to(data.X[first].astype(np.float32), (3, size, 2))
    return overlap(Z), distance(Z, boundary(labels))
