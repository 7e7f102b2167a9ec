"""The temperature, the trees of a pool and those of a prior mean as tensors, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cavity.forest import Forest
from cavity.modelfile.schema import TREES
from cavity.prediction.pool import NO_POOL, Pool
from cavity.prior_mean import NO_MEAN, PriorMean

if TYPE_CHECKING:
    from torch import Tensor

    Arrays = dict[str, Tensor] | dict[str, NDArray[Any]]

ARRAYS = tuple(tensor.name for tensor in TREES)


def describe_pool(pool: Pool) -> dict[str, Any] | None:
    """Return the part of a pool that is JSON, next to its tensors; None without a pool."""
    if pool.is_trivial:
        return None
    boosted = [member.boosted for member in pool.members]
    return {"weight": pool.weight, "weights": list(pool.weights), "boosted": boosted}


def pool_tensors(pool: Pool) -> dict[str, Tensor]:
    """Return the arrays of the trees by name."""
    return _forest_tensors("pool", pool.members)


def describe_mean(mean: PriorMean) -> dict[str, Any] | None:
    """Return the part of a prior mean that is JSON, next to its tensors; None without one."""
    if not mean.members:
        return None
    return {"weights": list(mean.weights), "boosted": [member.boosted for member in mean.members]}


def mean_tensors(mean: PriorMean) -> dict[str, Tensor]:
    """Return the arrays of the trees by name."""
    return _forest_tensors("prior_mean", mean.members)


def _forest_tensors(prefix: str, members: tuple[Forest, ...]) -> dict[str, Tensor]:
    import torch

    return {
        f"{prefix}.{i}.{name}": torch.from_numpy(np.ascontiguousarray(getattr(member, name)))
        for i, member in enumerate(members)
        for name in ARRAYS
    }


def restore_pool(tensors: Arrays, about: Any) -> Pool:
    """Make the pool from its tensors."""
    if about is None:
        return NO_POOL
    return Pool(about["weight"], _restore_forests(tensors, "pool", about["boosted"]), tuple(about["weights"]))


def restore_mean(tensors: Arrays, about: Any) -> PriorMean:
    """Make the prior mean from its tensors."""
    if about is None:
        return NO_MEAN
    return PriorMean(_restore_forests(tensors, "prior_mean", about["boosted"]), tuple(about["weights"]))


def _restore_forests(tensors: Arrays, prefix: str, boosted: list[bool]) -> tuple[Forest, ...]:
    return tuple(
        Forest(**{name: np.asarray(tensors[f"{prefix}.{i}.{name}"]) for name in ARRAYS}, boosted=b)
        for i, b in enumerate(boosted)
    )
