"""Check a model file against the schema: names, types and shapes before a tensor is
read, then the values. Needs no torch.
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

MOST_TREES = 1 << 30  # bytes that the trees may have
# times the posterior's size: values of an own kernel or likelihood, arrays among the
# arguments
ROOM = 64
LEAST = 1 << 20  # bytes that any model may have
CORE = ("mean", "lower", "prior_lower", "prior.inducing")
RBF: Meta = {"kernel": "RBF", "arguments": {}}
# of covariances, relative to the largest variance
ROUNDING = {"float64": 1e-6, "float32": 1e-2}


class Contents(NamedTuple):
    """What a checked file holds."""

    tensors: dict[str, tuple[Tensor, Sizes]]  # what letters stand for
    sizes: Sizes
    kernel: Any  # as JSON
    classes: NDArray[Any] | None


def check_header(declared: Declared, meta: Meta, own_bytes: int = 0) -> Contents:
    """Raise BadFile for JSON and tensors outside the schema; `own_bytes` is the size of
    a kernel of the user's own.
    """
    labels = meta.get("classes")
    classes = None if labels is None else unpack_labels(labels)
    sizes = _find_sizes(declared, meta, None if classes is None else len(classes))
    schema.check_facts(meta, schema.FACTS, sizes)
    kernel = _find_kernel(declared, meta)
    groups = _expect(declared, meta, kernel, sizes)
    tensors = {
        prefix + tensor.name: (tensor, of)
        for prefix, group, of in groups
        for tensor in group
    }
    known = {name.removesuffix("?"): about for name, about in tensors.items()}
    for name, (tensor, of) in known.items():
        if name in declared:
            _check_entry(name, declared[name], tensor, of, declared["mean"].dtype)
        elif not tensor.name.endswith("?"):
            raise BadFile(f"the file lacks the tensor {name!r:.100}.")
    others = {name: entry for name, entry in declared.items() if name not in known}
    _check_others(
        others, tuple(f"{at}." for at, name, _ in walk(kernel) if name is None)
    )
    _check_bytes(declared, others, own_bytes, sizes)
    return Contents(known, sizes, kernel, classes)


def check_values(arrays: Arrays, contents: Contents) -> None:
    """Raise BadFile for values outside their range, and for tensors that contradict
    each other.
    """
    for name, array in arrays.items():
        if not name.startswith(schema.FREE):
            tensor, sizes = contents.tensors.get(name, (None, contents.sizes))
            (FINITE if tensor is None else tensor.range).check(name, array, sizes)
    for at, _, _ in walk(contents.kernel):
        group = arrays.get(f"{at}.group")
        if group is not None and len(np.unique(group)) != contents.sizes["G"]:
            raise BadFile(
                "the groups of columns that share lengthscales do not fit together."
            )


def _find_sizes(declared: Declared, meta: Meta, n_classes: int | None) -> Sizes:
    """Return the numbers that the letters of shapes stand for."""
    for name in ("mean", "prior.center", "prior.inducing"):
        if name not in declared:
            raise BadFile(f"the file lacks the tensor {name!r}.")
        if not declared[name].shape:
            raise BadFile(f"{name} has shape ().")
    regresses = meta["kind"] == "regressor"
    if (n_classes is None) != regresses or (meta.get("units") is None) == regresses:
        raise BadFile(
            "a classifier has classes, and a regressor has units of its targets."
        )
    rows = declared["mean"].shape[0]
    if n_classes is None:
        C = rows
    elif n_classes == 2:
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
    B = 1
    if not (n_classes is not None and rows < C):
        B = C
    K = meta["prior"]["kernels"]
    if type(K) is not int or K not in (1, C):
        raise BadFile(
            f"the kernel has {K!r:.20} sets of parameters for {C} latent functions."
        )
    prepare = meta.get("preparation")
    if prepare is None:
        columns = D
    else:
        columns = len(prepare.get("features", prepare["columns"]))
    scales = [
        e.shape for name, e in declared.items() if name.endswith(".log_lengthscale")
    ]
    grouped = [shape[1] for shape in scales if len(shape) > 1]
    if any(name.endswith(".group") for name in declared):
        G = min([D, *grouped])
    else:
        G = D
    sizes = {
        "C": C,
        "D": D,
        "M": M,
        "B": B,
        "W": C // B * M,
        "K": K,
        "G": G,
        "columns": columns,
    }
    return sizes | {"pool members": len(_list_members(meta)), "classes": n_classes or 0}


def _find_kernel(declared: Declared, meta: Meta) -> Any:
    """Return the kernel as JSON: the given one, or the default."""
    found = meta["arguments"].get("kernel")
    if found is not None:
        return found
    if "prior.kernel.k2.log_lengthscale" not in declared:
        return RBF
    linear = {
        "kernel": "Linear",
        "arguments": {"fades": "prior.kernel.k2.square_reach" in declared},
    }
    return {"kernel": "Sum", "arguments": {"k1": RBF, "k2": linear}}


def walk(
    kernel: Any, at: str = "prior.kernel"
) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    """Yield where each part of a kernel is, its class and its arguments; no class for a
    part that the schema does not know.
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
    """Yield the tensors that the file of this JSON must have, or may have, after a
    prefix; and their sizes by letter.
    """
    learn = meta["prior"]["learn"]
    yield (
        "",
        (
            *schema.MODEL,
            schema.LEARNT_NOISE if "noise" in learn else schema.FIXED_NOISE,
        ),
        sizes,
    )
    for at, name, _ in walk(kernel):
        yield f"{at}.", schema.KERNELS.get(name or "", ()), sizes
    if any(name.startswith("rows.") for name in declared):
        yield "rows.", schema.ROWS, sizes
    members = {None: schema.NETWORK, ranges.LINEAR: schema.LINEAR_MODEL}
    for i, boosted in enumerate(_list_members(meta)):
        one = boosted is True
        n = sizes["classes"]
        of = {
            "boosted": one,
            "leaf": 1 if one else n,
            "scores": 1 if one and n == 2 else n,
        }
        yield f"pool.{i}.", members.get(boosted, schema.TREES), sizes | of


def _list_members(meta: Meta) -> list[Any]:
    """Return of each member of the pool whether its trees are boosted; None for
    networks, or "linear".
    """
    return list((meta.get("pool") or {"boosted": ()})["boosted"])


def _check_entry(
    name: str, entry: tensor_files.Entry, tensor: Tensor, sizes: Sizes, of_model: str
) -> None:
    """Check type and shape of a tensor; letters without a meaning get one."""
    types = tensor.dtype.split("|")
    if tensor.dtype == schema.T:
        if of_model in schema.FLOAT:
            types = [of_model]
        else:
            types = schema.FLOAT.split("|")
    if not _fits(tensor.shape.split(), entry.shape, sizes) or (
        entry.size and entry.dtype not in types
    ):
        wanted = " ".join(
            f"{part}={sizes[part]}" if part in sizes else part
            for part in tensor.shape.split()
        )
        said = f"{name:.100} has shape {entry.shape} and type {entry.dtype}"
        raise BadFile(f"{said}; expected ({wanted}), {' or '.join(types)}.")


def _fits(parts: list[str], shape: tuple[int, ...], sizes: Sizes) -> bool:
    if len(parts) != len(shape):
        return False
    for part, n in zip(parts, shape, strict=True):
        letters = part.split("|")
        if len(letters) == 1 and not part.isdigit():
            sizes.setdefault(part, n)
        if n not in (int(p) if p.isdigit() else sizes[p] for p in letters):
            return False
    return True


def _check_others(others: Declared, own: tuple[str, ...]) -> None:
    """Check names and types of tensors whose shape only a kernel, a likelihood or an
    argument of the user's knows.
    """
    for name, entry in others.items():
        if name.startswith(schema.FREE):
            continue
        if name.startswith("prior.") and not name.startswith(own or "own"):
            raise BadFile(
                f"{name!r:.100} is not known to this kernel: create kernel= as for the "
                f"fit."
            )
        if not name.startswith(("prior.", "factor.")):
            raise BadFile(
                f"tensor {name!r:.100} is not known: update cavity to the version that "
                f"wrote it."
            )
        if entry.dtype not in ("F64", "F32", "I64"):
            raise BadFile(
                f"{name!r:.100} is of type {entry.dtype}, which no model has."
            )


def _check_bytes(
    declared: Declared, others: Declared, own_bytes: int, sizes: Sizes
) -> None:
    """Check how much memory the tensors of any shape take, and the trees."""
    core = own_bytes + sum(declared[name].size for name in CORE)
    if sum(entry.size for entry in others.values()) > ROOM * core + LEAST:
        name = max(others, key=lambda n: others[n].size)
        raise BadFile(
            f"the tensor {name!r:.100} of {others[name].size} bytes is larger than a "
            f"model of {sizes['C']} latent functions, "
            f"{sizes['M']} inducing points and {sizes['D']} columns needs."
        )
    if (
        sum(entry.size for name, entry in declared.items() if name.startswith("pool."))
        > MOST_TREES
    ):
        raise BadFile(f"the trees of the model take more than {MOST_TREES >> 20} MB.")


def check_factor(covariance: NDArray[Any], lower: NDArray[Any]) -> None:
    """Raise BadFile unless L Lᵀ = k(Z, Z) + jitter · I of each latent function, both [C
    M M] or [1 M M].

    A random vector v is multiplied instead of matrices: L (Lᵀ v) takes M² operations.
    """
    K = covariance.astype(np.float64, copy=False)
    L = np.tril(lower.astype(np.float64, copy=False))
    v = (
        2.0 * (np.frombuffer(os.urandom(K.shape[-1]), np.uint8) & 1) - 1
    )  # numpy.random takes longer to load
    variance = K.diagonal(0, -2, -1)
    close = ROUNDING[lower.dtype.name] * variance.max(-1, keepdims=True)
    excess = np.square(L).sum(-1) - variance
    jitter = excess.mean(-1, keepdims=True)
    product = (L @ (L.swapaxes(-1, -2) @ v)[..., None])[..., 0]
    near = np.abs(product - K @ v - jitter * v) <= len(v) * close
    if not (near & (np.abs(excess - jitter) <= close) & (jitter >= -close)).all():
        raise BadFile(
            "prior_lower is not the Cholesky factor of the kernel at the inducing "
            "points."
        )
