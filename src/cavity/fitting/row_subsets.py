"""Rows for methods of regression that need a subset. [thesis 4.1.2, 4.2.3, 4.2.5]

They are a greedy active set, or the blocks of a committee.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from cavity.common.column_statistics import Columns, distinct_rows
from cavity.common.types import Floats, Ints
from cavity.engine.kernels import RBF, Kernel
from cavity.fitting.options.configuration import RegressorConfig
from cavity.fitting.options.value_checks import inducing_count
from cavity.tables.table import Start, Table


def choose_training_rows(
    config: RegressorConfig, table: Table, begin: Start, rng: np.random.Generator
) -> Table:
    """Return the rows that the method trains on.

    They are an active set, all rows in blocks, or all rows. Equal rows stay together.
    """
    method = config.method
    if method.committee is not None:
        n_blocks, blocks = method.committee
        distinct, place = distinct_rows(table.X)
        n_blocks = min(n_blocks, len(distinct))
        member = BLOCKS[blocks](distinct, n_blocks, begin.columns, rng)
        return replace(table, member=member[place])

    if method.active_set is not None:
        return _select_active_set(config, method.active_set, table, begin)

    return table


def _select_active_set(
    config: RegressorConfig, selection: str, table: Table, begin: Start
) -> Table:
    distinct, place = distinct_rows(table.X)
    assert config.n_inducing is not None
    M = inducing_count(config.n_inducing, table.weight.sum())
    if len(distinct) <= M:
        return table

    weight = np.bincount(place, weights=table.weight)
    y = np.bincount(place, weights=table.weight * table.y) / weight
    noise = np.maximum(config.noise[0], 1e-6) / weight
    kernel: Any = RBF()
    if config.kernel is not None:
        kernel = copy.deepcopy(config.kernel)
    if isinstance(kernel, Kernel):
        kernel.bind(1, begin.columns)

    active = active_rows(kernel, distinct, y, noise, M, selection)
    kept = np.isin(place, active)
    return replace(table, X=table.X[kept], y=table.y[kept], weight=table.weight[kept])


def entropy(mean: Floats, var: Floats, y: Floats, noise: Floats) -> Floats:
    """Return the drop in entropy of a row's own f: ½ log(1 + v/σ²). [thesis 4.8]"""
    return np.asarray(0.5 * np.log1p(var / noise))


def information(mean: Floats, var: Floats, y: Floats, noise: Floats) -> Floats:
    """Return the KL divergence of f's marginal with the row from the one without."""
    keep = noise / (var + noise)
    moved = (1 - keep) * (y - mean)
    from_mean = moved**2 / np.maximum(var, 1e-300)
    return np.asarray(0.5 * (keep - 1 - np.log(keep) + from_mean))


CRITERIA = {"entropy": entropy, "information": information}


@torch.no_grad()
def active_rows(
    kernel: Any, X: Floats, y: Floats, noise: Floats, M: int, criterion: str
) -> Ints:
    """Choose M rows greedily by a criterion, O(NM²).

    Each step adds a row to a Cholesky factor.
    """
    rows = torch.tensor(X)
    factor = np.zeros((M, len(X)))
    chosen = np.zeros(M, dtype=np.int64)
    mean = np.zeros(len(X))
    var = kernel.diag(rows)[0].double().cpu().numpy().copy()
    for m in range(M):
        gain = CRITERIA[criterion](mean, np.maximum(var, 0.0), y, noise)
        gain[chosen[:m]] = -np.inf
        best = int(np.argmax(gain))
        chosen[m] = best

        row = rows[None, best : best + 1]
        k = kernel.cross(row, rows)[0, 0].double().cpu().numpy()
        scale = np.sqrt(max(var[best], 0.0) + noise[best])
        factor[m] = (k - factor[:m, best] @ factor[:m]) / scale
        mean += factor[m] * ((y[best] - mean[best]) / scale)
        var -= factor[m] ** 2

    return np.sort(chosen)


def random_blocks(
    X: Floats, n_blocks: int, columns: Columns, rng: np.random.Generator
) -> Ints:
    """Assign rows to members of nearly equal size at random, [N]."""
    return np.asarray(rng.permutation(np.arange(len(X)) % n_blocks), dtype=np.int64)


def clustered_blocks(
    X: Floats, n_blocks: int, columns: Columns, _: np.random.Generator
) -> Ints:
    """Assign neighbouring rows to members of nearly equal size, [N].

    Rows are halved along the longest axis, recursively.
    """
    member = np.zeros(len(X), dtype=np.int64)
    U = (X - columns.center) / columns.spread

    def halve(rows: Ints, first: int, blocks: int) -> None:
        """Number the members of some rows, from `first` on."""
        if blocks == 1:
            member[rows] = first
            return

        longest = U[rows].var(0).argmax()
        order = rows[np.argsort(U[rows, longest], kind="stable")]
        left = blocks // 2
        cut = round(len(rows) * left / blocks)
        halve(order[cut:], first, blocks - left)
        halve(order[:cut], first + blocks - left, left)

    halve(np.arange(len(X)), 0, n_blocks)
    return member


BLOCKS = {"random": random_blocks, "clustered": clustered_blocks}


def points_of(X: Floats, member: Ints, rng: np.random.Generator) -> Floats:
    """Return the inducing inputs of each member, its distinct rows, [p M D].

    They are padded with rows of other members, whose values are marginalised.
    """
    each = [distinct_rows(X[member == c])[0] for c in range(member.max() + 1)]
    distinct = distinct_rows(X)[0]
    M = max(len(rows) for rows in each)
    filled = []
    for rows in each:
        known = {row.tobytes() for row in rows}
        others = np.array([row.tobytes() not in known for row in distinct])
        spare = rng.permutation(np.flatnonzero(others))[: M - len(rows)]
        filled.append(np.vstack([rows, distinct[spare]]))

    return np.stack(filled)
