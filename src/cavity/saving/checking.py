"""Check a model file against the schema, without torch.

Names, types and shapes are checked before a tensor is read, then the values.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common import tensor_files
from cavity.errors import BadFile
from cavity.saving import ranges, schema
from cavity.saving.ranges import FINITE, Sizes
from cavity.saving.schema import Tensor
from cavity.saving.serialize import unpack_labels

Declared = dict[str, tensor_files.Entry]
Arrays = dict[str, NDArray[Any]]
Meta = dict[str, Any]
Group = tuple[str, tuple[Tensor, ...], Sizes]

MOST_TREES = 1 << 30  # bytes of all trees
# limit for values of a user's own kernel or likelihood and for arrays among the
# arguments: this multiple of the posterior's size
ROOM = 64
LEAST = 1 << 20  # bytes that every model may have beyond that
CORE = ("mean", "lower", "prior_lower", "prior.inducing")
RBF: Meta = {"kernel": "RBF", "arguments": {}}
# rounding error of covariances, relative to the largest variance
ROUNDING = {"float64": 1e-6, "float32": 1e-2}


class Contents(NamedTuple):
    """What a checked file holds."""

    tensors: dict[str, tuple[Tensor, Sizes]]  # with the sizes of their group
    sizes: Sizes
    kernel: Any  # as JSON
    classes: NDArray[Any] | None


def check_header(declared: Declared, meta: Meta, own_bytes: int = 0) -> Contents:
    """Raise BadFile for JSON and tensors outside the schema.

    `own_bytes`: size of a user's own kernel.
    """
    labels = meta.get("classes")
    classes = None if labels is None else unpack_labels(labels)
    sizes = _find_sizes(declared, meta, None if classes is None else len(classes))
    schema.check_facts(meta, schema.FACTS, sizes)
    kernel = _find_kernel(declared, meta)

    known = {}
    for prefix, tensors, of in _expect(declared, meta, kernel, sizes):
        for tensor in tensors:
            name = prefix + tensor.name.removesuffix("?")
            known[name] = (tensor, of)
            if name in declared:
                _check_entry(name, declared[name], tensor, of, declared["mean"].dtype)
            elif not tensor.name.endswith("?"):
                raise BadFile(f"the file lacks the tensor {name!r:.100}.")

    others = {name: entry for name, entry in declared.items() if name not in known}
    own = tuple(f"{at}." for at, name, _ in walk(kernel) if name is None)
    _check_others(others, own)
    _check_bytes(declared, others, own_bytes, sizes)
    return Contents(known, sizes, kernel, classes)


def check_values(arrays: Arrays, contents: Contents) -> None:
    """Raise BadFile for values outside their range and tensors that contradict each
    other.
    """
    other = (Tensor("", "", "", FINITE), contents.sizes)
    for name, array in arrays.items():
        if not name.startswith(schema.FREE):
            tensor, sizes = contents.tensors.get(name, other)
            tensor.range.check(name, array, sizes)

    for at, _, _ in walk(contents.kernel):
        group = arrays.get(f"{at}.group")
        index = arrays.get(f"{at}.index")
        if index is not None and len(np.unique(index)) != len(index):
            raise BadFile(f"{at}.index has a column twice.")

        if group is None:
            continue

        _, sizes = contents.tensors[f"{at}.group"]
        if len(np.unique(group)) != sizes["G"]:
            raise BadFile(
                "the groups of columns that share lengthscales do not fit together."
            )


def _find_sizes(declared: Declared, meta: Meta, n_classes: int | None) -> Sizes:
    """Return the sizes by the letters that stand for them in shapes."""
    for name in ("mean", "prior.center", "prior.inducing"):
        if name not in declared:
            raise BadFile(f"the file lacks the tensor {name!r}.")
        if not declared[name].shape:
            raise BadFile(f"{name} has shape ().")

    regresses = meta["kind"] == "regressor"
    has_units = meta.get("units") is not None
    if (n_classes is None) != regresses or has_units != regresses:
        raise BadFile(
            "a classifier has classes, and a regressor has units of its targets."
        )

    rows = declared["mean"].shape[0]
    if n_classes is None:
        C = rows
    elif n_classes == 2 or meta["arguments"].get("order") is not None:
        C = 1
    else:
        C = n_classes

    D = declared["prior.center"].shape[0]
    M = declared["prior.inducing"].shape[-2]
    if meta["prior"].get("spectrum"):
        raise BadFile(
            "the model has a sparse spectrum, which cavity 0.3 reads (pip install "
            "'cavity<0.4'): fit again with inducing points."
        )
    if not C * D * M:
        raise BadFile("the file lacks inducing points or columns.")

    is_coupled = n_classes is not None and rows < C
    B = 1 if is_coupled else C
    K = meta["prior"]["kernels"]
    if type(K) is not int or K not in (1, C):
        raise BadFile(
            f"the kernel has {K!r:.20} sets of parameters for {C} latent functions."
        )

    columns = D
    prepare = meta.get("preparation")
    if prepare is not None:
        columns = len(prepare.get("features", prepare["columns"]))
    return {
        "C": C,
        "D": D,
        "M": M,
        "B": B,
        "W": C // B * M,
        "K": K,
        "F": D,
        "G": _count_lengthscales(declared, D),
        "columns": columns,
        "pool members": len(_list_members(meta)),
        "scored members": schema.count_scored(meta),
        "classes": n_classes or 0,
    }


def _count_lengthscales(declared: Declared, D: int) -> int:
    """Return the number of lengthscales per set: D unless columns share some."""
    count = D
    is_grouped = False
    for name, entry in declared.items():
        if f"{name.rpartition('.')[0]}.index" in declared:
            continue  # it has a number of its own

        is_grouped |= name.endswith(".group")
        if name.endswith(".log_lengthscale") and len(entry.shape) > 1:
            count = min(count, entry.shape[1])

    return count if is_grouped else D


def _find_kernel(declared: Declared, meta: Meta) -> Any:
    """Return the kernel as JSON: the given one, or the default."""
    given = meta["arguments"].get("kernel")
    if given is not None:
        return given
    if "prior.kernel.k2.log_lengthscale" not in declared:
        return RBF

    fades = "prior.kernel.k2.square_reach" in declared
    linear = {"kernel": "Linear", "arguments": {"fades": fades}}
    return {"kernel": "Sum", "arguments": {"k1": RBF, "k2": linear}}


def walk(
    kernel: Any, at: str = "prior.kernel"
) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    """Yield the place, class and arguments of each part of a kernel.

    The class is None for a part that the schema does not know.
    """
    about = kernel if isinstance(kernel, dict) else {}
    name = about.get("kernel")
    arguments = about.get("arguments")
    if name not in schema.KERNELS or not isinstance(arguments, dict):
        yield at, None, {}
        return

    yield at, name, arguments
    for part in ("k1", "k2", "base"):
        if part in arguments:
            yield from walk(arguments[part], f"{at}.{part}")


def _expect(
    declared: Declared, meta: Meta, kernel: Any, sizes: Sizes
) -> Iterator[Group]:
    """Yield the tensors that the file must or may have: prefix, tensors, sizes."""
    noise = schema.FIXED_NOISE
    if "noise" in meta["prior"]["learn"]:
        noise = schema.LEARNT_NOISE
    yield "", (*schema.MODEL, noise), sizes
    for at, name, _ in walk(kernel):
        of = _find_kernel_sizes(declared, at, sizes)
        yield f"{at}.", schema.KERNELS.get(name or "", ()), of
    if any(name.startswith("rows.") for name in declared):
        yield "rows.", schema.ROWS, sizes
    members = {None: schema.NETWORK, ranges.LINEAR: schema.LINEAR_MODEL}
    n_classes = sizes["classes"]
    averaged = {"boosted": 0, "leaf": n_classes, "scores": n_classes}
    scores = 1 if n_classes == 2 else n_classes
    summed = {"boosted": 1, "leaf": 1, "scores": scores}
    for i, boosted in enumerate(_list_members(meta)):
        of = sizes | (summed if boosted is True else averaged)
        yield f"pool.{i}.", members.get(boosted, schema.TREES), of


def _find_kernel_sizes(declared: Declared, at: str, sizes: Sizes) -> Sizes:
    """Return the sizes of a kernel's tensors, which may see some columns alone."""
    index = declared.get(f"{at}.index")
    scales = declared.get(f"{at}.log_lengthscale")
    if index is None or scales is None:
        return sizes

    F = index.shape[0] if len(index.shape) == 1 else 0
    G = F
    if f"{at}.group" in declared:
        G = scales.shape[-1] if scales.shape else 0
    return sizes | {"F": F, "G": G}


def _list_members(meta: Meta) -> list[Any]:
    """Return the kind of each member of the pool: whether its trees are boosted, None
    for networks, "linear" for logistic regression.
    """
    pool = meta.get("pool")
    return list(pool["boosted"]) if pool else []


def _check_entry(
    name: str, entry: tensor_files.Entry, tensor: Tensor, sizes: Sizes, of_model: str
) -> None:
    """Check type and shape of a tensor.

    A letter that has no size yet gets the size that it has here.
    """
    types = tensor.dtype.split("|")
    if tensor.dtype == schema.T:
        types = [of_model] if of_model in schema.FLOAT else schema.FLOAT.split("|")
    parts = tensor.shape.split()
    _define_sizes(parts, entry.shape, sizes)
    has_type = not entry.size or entry.dtype in types
    if not _fits(parts, entry.shape, sizes) or not has_type:
        wanted = " ".join(
            f"{part}={sizes[part]}" if part in sizes else part for part in parts
        )
        said = f"{name:.100} has shape {entry.shape} and type {entry.dtype}"
        raise BadFile(f"{said}; expected ({wanted}), {' or '.join(types)}.")


def _define_sizes(parts: list[str], shape: tuple[int, ...], sizes: Sizes) -> None:
    """Set the sizes of letters that have none; the first tensor that has one decides."""
    if len(parts) == len(shape):
        for part, n in zip(parts, shape, strict=True):
            if "|" not in part and not part.isdigit():
                sizes.setdefault(part, n)


def _fits(parts: list[str], shape: tuple[int, ...], sizes: Sizes) -> bool:
    """Return whether a shape agrees with the sizes; `1|C` allows either."""

    def allows(part: str, n: int) -> bool:
        return any(
            n == (int(letter) if letter.isdigit() else sizes[letter])
            for letter in part.split("|")
        )

    return len(parts) == len(shape) and all(map(allows, parts, shape))


def _check_others(others: Declared, own: tuple[str, ...]) -> None:
    """Check names and types of tensors that the schema does not know.

    They belong to a kernel, a likelihood or an argument of the user's own; `own`: the
    prefixes of such kernels.
    """
    for name, entry in others.items():
        if name.startswith(schema.FREE):
            continue
        if name.startswith("prior.") and not name.startswith(own or "own"):
            raise BadFile(
                f"{name!r:.100} is not known to this kernel: create kernel= as for the "
                "fit."
            )
        if not name.startswith(("prior.", "factor.")):
            raise BadFile(
                f"tensor {name!r:.100} is not known: update cavity to the version that "
                "wrote it."
            )
        if entry.dtype not in ("F64", "F32", "I64"):
            raise BadFile(
                f"{name!r:.100} has the type {entry.dtype}, which no model has."
            )


def _check_bytes(
    declared: Declared, others: Declared, own_bytes: int, sizes: Sizes
) -> None:
    """Check the memory of tensors without a known shape, and of the pool."""
    core = own_bytes + sum(declared[name].size for name in CORE)
    if sum(entry.size for entry in others.values()) > ROOM * core + LEAST:
        name = max(others, key=lambda n: others[n].size)
        raise BadFile(
            f"the tensor {name!r:.100} of {others[name].size} bytes is larger than a "
            f"model of {sizes['C']} latent functions, {sizes['M']} inducing points and "
            f"{sizes['D']} columns needs."
        )

    in_pool = [
        entry.size for name, entry in declared.items() if name.startswith("pool.")
    ]
    if sum(in_pool) > MOST_TREES:
        raise BadFile(f"the trees of the model take more than {MOST_TREES >> 20} MB.")


def check_factor(covariance: NDArray[Any], lower: NDArray[Any]) -> None:
    """Raise BadFile unless L Lᵀ = k(Z, Z) + jitter · I; both [C M M] or [1 M M].

    A random vector v is multiplied instead of matrices: L (Lᵀ v) takes M² operations.
    """
    K = covariance.astype(np.float64, copy=False)
    L = np.tril(lower.astype(np.float64, copy=False))
    # not by numpy.random, which takes longer to load
    bits = np.frombuffer(os.urandom(K.shape[-1]), np.uint8) & 1
    v = 2.0 * bits - 1
    variance = K.diagonal(0, -2, -1)
    close = ROUNDING[lower.dtype.name] * variance.max(-1, keepdims=True)
    excess = np.square(L).sum(-1) - variance
    jitter = excess.mean(-1, keepdims=True)
    product = (L @ (L.swapaxes(-1, -2) @ v)[..., None])[..., 0]
    same_product = np.abs(product - K @ v - jitter * v) <= len(v) * close
    same_jitter = np.abs(excess - jitter) <= close
    if not (same_product & same_jitter & (jitter >= -close)).all():
        raise BadFile(
            "prior_lower is not the Cholesky factor of the kernel at the inducing "
            "points."
        )
