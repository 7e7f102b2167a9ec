"""The arrays of a pool and its model: listed for a file, and restored from one."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.common.types import Flags
from cavity.errors import BadFile
from cavity.pool.networks import LinearModel, Network
from cavity.pool.pool import NO_POOL, Gate, Member, Pool
from cavity.pool.tree_ensembles import Forest
from cavity.prediction.model import FittedModel
from cavity.saving.checking import Arrays
from cavity.saving.ranges import LINEAR
from cavity.saving.schema import LINEAR_MODEL, NETWORK, TREES
from cavity.saving.serialize import from_json, read_array, to_json

DECLARED: dict[type, tuple[Any, ...]] = {
    Forest: TREES,
    LinearModel: LINEAR_MODEL,
    Network: NETWORK,
}


def select_arrays(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return the arrays whose names begin with a prefix, without it."""
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def describe_pool(pool: Pool) -> dict[str, Any] | None:
    """Return what JSON holds of a pool besides its arrays; None without a pool."""
    if pool.is_trivial:
        return None

    return {
        "weight": pool.weight,
        "weights": pool.weights,
        "boosted": [_describe_member(member) for member in pool.members],
        "gate": to_json(pool.gate),
    }


def _describe_member(member: Member) -> bool | str | None:
    """Return whether trees are boosted, None for networks, or "linear"."""
    if isinstance(member, Forest):
        return member.boosted

    return LINEAR if isinstance(member, LinearModel) else None


def list_arrays(model: FittedModel) -> dict[str, Any]:
    """Return the arrays of a model and its pool by their names in the schema."""
    arrays: dict[str, Any] = model.prior.state_dict(prefix="prior.")
    for name in ("prior_lower", "mean", "lower"):
        arrays[name] = getattr(model, name)
    for name, value in model.likelihood.state().items():
        arrays[f"factor.{name}"] = value
    for i, member in enumerate(model.pool.members):
        if isinstance(member, Forest):
            finite = np.where(_find_leaves(member), 0, member.threshold)
            member = member._replace(threshold=finite)
        for tensor in DECLARED[type(member)]:
            name = tensor.name.removesuffix("?")
            array = np.ascontiguousarray(getattr(member, name))
            if array.size or not tensor.name.endswith("?"):
                arrays[f"pool.{i}.{name}"] = array

    return arrays


def _find_leaves(forest: Forest) -> Flags:
    return np.asarray(forest.child == np.arange(len(forest.child)))


def restore_pool(arrays: Arrays, about: Any) -> Pool:
    if about is None:
        return NO_POOL

    members = [
        _restore_member(select_arrays(arrays, f"pool.{i}."), boosted)
        for i, boosted in enumerate(about["boosted"])
    ]
    gate = from_json(Gate, about.get("gate"), read_array)
    return Pool(about["weight"], tuple(members), tuple(about["weights"]), gate)


def _restore_member(arrays: Arrays, boosted: bool | str | None) -> Member:
    if boosted is None:
        return Network(**arrays)
    if boosted == LINEAR:
        return LinearModel(**arrays)

    forest = Forest(**arrays, boosted=boosted is True)
    threshold = np.where(_find_leaves(forest), np.inf, forest.threshold)
    forest = forest._replace(threshold=threshold.astype(forest.threshold.dtype))
    if not (_are_apart(forest) and _are_rounds(forest)):
        raise BadFile("the trees of the pool do not fit together.")

    return forest


def _are_rounds(forest: Forest) -> bool:
    """Return whether each round of boosting has a tree for every score."""
    scores = len(forest.start)
    order = np.arange(len(forest.root)) % scores
    in_order = len(order) % scores == 0 and np.array_equal(forest.column, order)
    return in_order or not forest.boosted


def _are_apart(forest: Forest) -> bool:
    """Return whether nodes follow the root of their tree, and children their parents."""
    own = np.arange(len(forest.child))
    ends = np.append(forest.root, len(forest.child))
    size = np.diff(ends)
    if forest.root[0] != 0 or not (size > 0).all():
        return False

    right = forest.child + ~_find_leaves(forest)
    in_tree = right < np.repeat(ends[1:], size)
    return bool(((forest.child >= own) & in_tree).all())
