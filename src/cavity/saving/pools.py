"""The temperature and the members of a pool as arrays, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadFile
from cavity.prediction.linear_model import LinearModel
from cavity.prediction.networks import Network
from cavity.prediction.pool import NO_POOL, Gate, Member, Pool
from cavity.prediction.tree_ensembles import Forest
from cavity.saving.ranges import LINEAR
from cavity.saving.schema import LINEAR_MODEL, NETWORK, TREES
from cavity.saving.serialize import from_json, read_array, to_json

Arrays = dict[str, NDArray[Any]]


DECLARED: dict[type, tuple[Any, ...]] = {Forest: TREES, LinearModel: LINEAR_MODEL, Network: NETWORK}


def describe_pool(pool: Pool) -> dict[str, Any] | None:
    """Return the part of a pool that is JSON, next to its arrays; None without a pool."""
    if pool.is_trivial:
        return None
    boosted = [
        member.boosted if isinstance(member, Forest) else LINEAR if isinstance(member, LinearModel) else None
        for member in pool.members
    ]
    return {
        "weight": pool.weight,
        "weights": list(pool.weights),
        "boosted": boosted,
        "gate": to_json(pool.gate),
    }


def list_arrays(pool: Pool) -> Arrays:
    """Return the arrays of the members by the names of the schema."""
    found: Arrays = {}
    for i, member in enumerate(pool.members):
        if isinstance(member, Forest):
            member = member._replace(threshold=np.where(_find_leaves(member), 0, member.threshold))
        names = [tensor.name.removesuffix("?") for tensor in DECLARED[type(member)]]
        own = {name: np.ascontiguousarray(getattr(member, name)) for name in names}
        found |= {f"pool.{i}.{name}": a for name, a in own.items() if a.size or name not in ("block", "code")}
    return found


def _find_leaves(forest: Forest) -> NDArray[np.bool_]:
    return np.asarray(forest.child == np.arange(len(forest.child)))


def restore_pool(arrays: Arrays, about: Any) -> Pool:
    if about is None:
        return NO_POOL
    members = tuple(_restore_member(arrays, f"pool.{i}.", b) for i, b in enumerate(about["boosted"]))
    return Pool(
        about["weight"], members, tuple(about["weights"]), from_json(Gate, about.get("gate"), read_array)
    )


def _restore_member(arrays: Arrays, prefix: str, boosted: bool | str | None) -> Member:
    of = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
    if boosted is None:
        return Network(**of)
    if boosted == LINEAR:
        return LinearModel(**of)
    forest = Forest(**of, boosted=boosted is True)
    threshold = np.where(_find_leaves(forest), np.inf, forest.threshold).astype(forest.threshold.dtype)
    forest = forest._replace(threshold=threshold)
    if not _are_apart(forest):
        raise BadFile("the trees of the pool do not fit together.")
    return forest


def _are_apart(forest: Forest) -> bool:
    """Return whether the nodes of each tree follow its root, and their children follow them."""
    own, ends = np.arange(len(forest.child)), np.append(forest.root, len(forest.child))
    size = np.diff(ends)
    if forest.root[0] != 0 or not (size > 0).all():
        return False
    last = forest.child + ~_find_leaves(forest)
    return bool((forest.child >= own).all() and (last < np.repeat(ends[1:], size)).all())
