"""Choose the inducing inputs Z: random, k-means++, per class, greedy, or given.

Every chooser returns rows of the data and works in units of each column's spread. It
sees distinct rows with their summed weights, so its choice does not depend on the order
of rows, nor on whether a row is repeated or weighted. `choose_between_rows` returns
points between rows, for a model that may be shared without its data.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cavity.common.column_statistics import (
    Columns,
    arrange_columns,
    distinct_rows,
    sort_rows,
)
from cavity.common.types import Floats, Ints
from cavity.errors import BadInput, BadOption

# "auto" is "per-class" if there are several latent functions
CHOOSERS = ("auto", "random", "kmeans", "per-class", "greedy")
SPECTRUM = "spectrum"  # no rows: frequencies, which the kernel draws
CANDIDATES = 10_000  # rows that a chooser considers
LEAST_VARIANCE = 1e-12  # of a row given others, relative to its prior variance
NEIGHBOURS = 5  # nearest rows, towards one of which a point moves
# By this share of the way. Not 1/2: mutual nearest neighbours would coincide.
BETWEEN = (1 / 3, 2 / 3)


class Candidates(NamedTuple):
    """Distinct rows to choose from."""

    X: Floats  # [N D], the user's units
    U: Floats  # [N D], standardised
    class_weight: Floats  # [N C], weight of the row in each class
    distance: float  # median distance between rows of U

    @property
    def weight(self) -> Floats:
        """Total weight of each row, [N]."""
        return np.asarray(self.class_weight.sum(1))

    def arrange(self) -> tuple[Candidates, Ints]:
        """Return candidates in a canonical order, and each class's place in it.

        The order does not depend on signs of columns or names of classes.
        """
        order = sort_rows(arrange_columns(self.X))
        weight = self.class_weight[order]
        classes = np.lexsort(weight[::-1])
        arranged = self._replace(
            X=self.X[order], U=self.U[order], class_weight=weight[:, classes]
        )
        return arranged, np.argsort(classes)


def draw_candidates(
    X: Floats,
    y: Ints,
    weight: Floats,
    n_classes: int,
    columns: Columns,
    rng: np.random.Generator,
    *,
    limit: int = CANDIDATES,
) -> Candidates:
    """Return distinct rows in a canonical order, each with its weight in every class.

    More than `limit` rows are sampled.
    """
    if len(X) > limit:
        share = weight / weight.sum()
        chosen = np.sort(rng.choice(len(X), limit, replace=False, p=share))
        X = X[chosen]
        y = y[chosen]
        weight = np.ones(limit)

    distinct, place = distinct_rows(X)
    U = (distinct - columns.center) / columns.spread
    class_weight = np.zeros((len(distinct), n_classes))
    np.add.at(class_weight, (place, y), weight)
    return Candidates(distinct, U, class_weight, columns.distance)


def choose(
    how: Any, candidates: Candidates, M: int, C: int, rng: np.random.Generator
) -> Floats:
    """Return inducing inputs [C M D] for C latent functions.

    These are all distinct rows if there are at most M, or if `how` is None.
    """
    X = candidates.X
    if how is not None and not isinstance(how, str):
        return given(how, C, X.shape[1])

    check_choice(how)
    if how is None or len(X) <= M:
        return np.repeat(X[None], C, axis=0)
    if how in ("auto", "per-class") and C > 1:
        return per_class(candidates, M, C, rng)

    if how == "kmeans":
        rows = kmeans(candidates, M, rng)
    elif how == "greedy":
        rows = greedy(candidates, M, rng)
    else:
        rows = _draw(candidates.weight, M, rng)

    return np.repeat(X[None, rows], C, axis=0)


def check_choice(how: Any) -> None:
    """Refuse an unknown name for `inducing`."""
    if isinstance(how, str) and how not in (*CHOOSERS, SPECTRUM):
        known = ", ".join(map(repr, (*CHOOSERS, SPECTRUM)))
        raise BadOption(
            f"inducing={how!r} is unknown; use {known}, None for every row, or an array "
            "(M, D) or (C, M, D)."
        )


def is_spectrum(how: Any) -> bool:
    """Return whether `inducing` asks for frequencies instead of points."""
    return isinstance(how, str) and how == SPECTRUM


def given(value: Any, C: int, D: int) -> Floats:
    """Check and broadcast inducing inputs that the user supplies."""
    Z = np.asarray(value, dtype=np.float64)
    if Z.ndim == 2:
        Z = np.repeat(Z[None], C, axis=0)
    if Z.ndim != 3 or Z.shape[0] != C or Z.shape[2] != D or Z.shape[1] < 1:
        raise BadOption(
            f"inducing has shape {np.shape(value)}; it must be (M, {D}), or ({C}, M, "
            f"{D}) with one set per latent function (two classes have one function)."
        )
    if not np.isfinite(Z).all():
        raise BadInput(
            "inducing contains NaN or infinite values: give finite points in the units "
            "of the features."
        )

    return Z.copy()


def kmeans(candidates: Candidates, M: int, rng: np.random.Generator) -> Ints:
    """Choose rows by k-means++ seeding: far from each other, where the data are."""
    from sklearn.cluster import kmeans_plusplus

    seed = int(rng.integers(2**31 - 1))
    _, index = kmeans_plusplus(
        candidates.U, M, sample_weight=candidates.weight, random_state=seed
    )
    return np.asarray(index, dtype=np.int64)


def greedy(candidates: Candidates, M: int, rng: np.random.Generator) -> Ints:
    r"""Choose rows one by one, each of largest variance given the earlier ones.

    This is pivoted Cholesky of k(U, U), an RBF at the median distance: [thesis 4.1.2]

        l_m = (k(u, u_m) − Σ_{j<m} l_j l_j[u_m]) / √v[u_m]        v ← v − l_m²

    with v = k(u, u) = 1 at first. The first row is drawn by weight.
    """
    U = candidates.U
    v = np.ones(len(U))
    L = np.zeros((M, len(U)))
    rows = np.empty(M, dtype=np.int64)
    rows[0] = _draw(candidates.weight, 1, rng)[0]
    for m in range(M):
        if m > 0:
            rows[m] = np.argmax(v)
        row = rows[m]
        square = np.square(U - U[row]).sum(1) / candidates.distance**2
        rest = np.exp(-0.5 * square) - L[:m, row] @ L[:m]
        L[m] = rest / np.sqrt(max(v[row], LEAST_VARIANCE))
        v = np.maximum(v - L[m] ** 2, 0.0)
        v[rows[: m + 1]] = -1.0  # never chosen again

    return rows


def per_class(
    candidates: Candidates, M: int, C: int, rng: np.random.Generator
) -> Floats:
    """Draw half of Z_c from class c, and the other half from all rows."""
    Z = []
    total = candidates.weight
    for c in range(C):
        own = candidates.class_weight[:, c]
        half = min(M // 2, int((own > 0).sum()))
        first = _draw(own, half, rng)
        others = total.copy()
        others[first] = 0.0
        Z.append(candidates.X[np.concatenate([first, _draw(others, M - half, rng)])])

    return np.stack(Z)


def _draw(weight: Floats, M: int, rng: np.random.Generator) -> Ints:
    """Sample by weight without replacement: the M largest u^(1/w).

    In logarithms, so that no weight underflows.
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # a class may have no rows
        key = np.log(rng.random(len(weight))) / (weight / weight.max())
    return np.asarray(np.argsort(-key, kind="stable")[:M], dtype=np.int64)


def choose_between_rows(
    how: str, candidates: Candidates, M: int, C: int, rng: np.random.Generator
) -> Floats:
    """Return inducing inputs [C M D] that are not rows.

    Each lies between a chosen row and one of its nearest rows.
    """
    X = candidates.X
    U = candidates.U
    n = len(X)
    numbers = np.arange(n, dtype=np.float64)[:, None]
    chosen = choose(how, candidates._replace(X=numbers), M, C, rng)
    square = np.square(U).sum(1)
    nearest = min(NEIGHBOURS, n - 1)
    Z = []
    for rows in chosen[..., 0].astype(np.int64):
        # rounded: equal distances stay equal in any order of columns
        distance = np.round(square - 2 * U[rows] @ U.T, 9)
        distance[np.arange(len(rows)), rows] = np.inf
        other = _find_neighbour(distance, rng.integers(nearest, size=len(rows)))
        share = rng.uniform(*BETWEEN, (len(rows), 1))
        Z.append(X[rows] + share * (X[other] - X[rows]))

    return np.stack(Z)


def _find_neighbour(distance: Floats, rank: Ints) -> Ints:
    """Return the column that has this rank in each row; of equal ones, the first first."""
    most = int(rank.max()) + 1
    limit = np.partition(distance, most - 1, axis=1)[:, most - 1]
    row, column = np.nonzero(distance <= limit[:, None])
    order = np.lexsort((column, distance[row, column], row))
    first = np.searchsorted(row, np.arange(len(distance)))
    return np.asarray(column[order[first + rank]])
