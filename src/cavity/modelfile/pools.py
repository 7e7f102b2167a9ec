"""The temperature and the trees of a pool as tensors, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadFile
from cavity.forest import Forest
from cavity.modelfile.facts import finite
from cavity.prediction.pool import NO_POOL, Pool

if TYPE_CHECKING:
    from torch import Tensor

    Arrays = dict[str, Tensor] | dict[str, NDArray[Any]]

ARRAYS = ("feature", "threshold", "left", "right", "value", "root", "column", "start")


def describe_pool(pool: Pool) -> dict[str, Any] | None:
    """Return the part of a pool that is JSON, next to its tensors; None without a pool."""
    if pool.is_trivial:
        return None
    boosted = [member.boosted for member in pool.members]
    return {"weight": pool.weight, "weights": list(pool.weights), "boosted": boosted}


def pool_tensors(pool: Pool) -> dict[str, Tensor]:
    """Return the arrays of the trees by name."""
    import torch

    return {
        f"pool.{i}.{name}": torch.from_numpy(np.ascontiguousarray(getattr(member, name)))
        for i, member in enumerate(pool.members)
        for name in ARRAYS
    }


def restore_pool(tensors: Arrays, about: Any, n_columns: int, n_classes: int) -> Pool:
    """Make the pool from its tensors; every index is checked."""
    if about is None:
        return NO_POOL
    weights = tuple(finite(w) for w in about["weights"])
    boosted = about["boosted"]
    weight = finite(about["weight"])
    if (
        len(weights) != len(boosted)
        or not all(w >= 0 for w in (weight, *weights))
        or weight + sum(weights) <= 0
    ):
        raise BadFile("the weights of the pool are not one positive number per member.")
    members = (
        _restore_forest(tensors, f"pool.{i}", bool(b), n_columns, n_classes) for i, b in enumerate(boosted)
    )
    return Pool(weight, tuple(members), weights)


def _restore_forest(tensors: Arrays, prefix: str, boosted: bool, n_columns: int, n_classes: int) -> Forest:
    arrays = {name: np.asarray(tensors[f"{prefix}.{name}"]) for name in ARRAYS}
    forest = Forest(**arrays, boosted=boosted)
    nodes, trees = len(forest.feature), len(forest.root)
    scores = 1 if boosted and n_classes == 2 else n_classes
    own = np.arange(nodes)
    good = (
        all(len(arrays[name]) == nodes for name in ("threshold", "left", "right", "value"))
        and forest.value.shape == (nodes, 1 if boosted else n_classes)
        and len(forest.column) == trees > 0
        and forest.start.shape == (scores,)
        and _within(forest.feature, 0, n_columns)
        and _within(forest.root, 0, nodes)
        and _within(forest.column, 0, scores)
        and all((own <= side).all() and _within(side, 0, nodes) for side in (forest.left, forest.right))
    )
    if not good:
        raise BadFile(f"the trees {prefix} do not fit together.")
    return forest


def _within(values: Any, low: int, high: int) -> bool:
    return bool(values.dtype.kind == "i" and values.ndim == 1 and ((values >= low) & (values < high)).all())
