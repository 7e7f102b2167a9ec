"""The temperature and the trees of a pool as tensors, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cavity.prediction.pool import NO_POOL, Gate, Pool
from cavity.prediction.tree_ensembles import Forest
from cavity.saving.schema import TREES

if TYPE_CHECKING:
    from torch import Tensor

    Arrays = dict[str, Tensor] | dict[str, NDArray[Any]]

ARRAYS = tuple(tensor.name for tensor in TREES)


def describe_pool(pool: Pool) -> dict[str, Any] | None:
    """Return the part of a pool that is JSON, next to its tensors; None without a pool."""
    if pool.is_trivial:
        return None
    boosted = [member.boosted for member in pool.members]
    gate = None if pool.gate is None else {"scale": pool.gate.scale.tolist(), "usual": pool.gate.usual}
    return {"weight": pool.weight, "weights": list(pool.weights), "boosted": boosted, "gate": gate}


def pool_tensors(pool: Pool) -> dict[str, Tensor]:
    """Return the arrays of the trees by name."""
    import torch

    return {
        f"pool.{i}.{name}": torch.from_numpy(np.ascontiguousarray(getattr(member, name)))
        for i, member in enumerate(pool.members)
        for name in ARRAYS
    }


def restore_pool(tensors: Arrays, about: Any) -> Pool:
    """Make the pool from its tensors."""
    if about is None:
        return NO_POOL
    members = tuple(
        Forest(**{name: np.asarray(tensors[f"pool.{i}.{name}"]) for name in ARRAYS}, boosted=boosted)
        for i, boosted in enumerate(about["boosted"])
    )
    gate = about.get("gate")  # files before 0.3 have none
    gate = None if gate is None else Gate(np.array(gate["scale"], dtype=np.float64), float(gate["usual"]))
    return Pool(about["weight"], members, tuple(about["weights"]), gate)
