"""Check a model file against the schema: names, types and shapes before a tensor is read, then the values. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity import persist
from cavity.errors import BadFile
from cavity.modelfile import schema
from cavity.modelfile.facts import unpack_labels
from cavity.modelfile.ranges import FINITE, Sizes
from cavity.modelfile.schema import Tensor

Declared = dict[str, persist.Entry]
Arrays = dict[str, NDArray[Any]]
Meta = dict[str, Any]

TREES = ("pool", "prior_mean")
MOST_TREES = 1 << 30  # bytes that the trees may have
ROOM = 64  # times the posterior's size: values of an own kernel or likelihood, arrays among the arguments
LEAST = 1 << 20  # bytes that any model may have
CORE = ("mean", "lower", "prior_lower", "prior.inducing")
RBF: Meta = {"kernel": "RBF", "arguments": {}}
LINEAR: Meta = {"kernel": "Linear", "arguments": {}}
JITTER = 0.011  # most that a fit adds to the diagonal of k(Z, Z), relative to its mean
ROUNDING = {"float64": 1e-6, "float32": 1e-2}  # of k(Z, Z), relative to its largest variance


class Expected(NamedTuple):
    """A tensor that a file must have, or may have, and the sizes that its letters stand for."""

    name: str
    tensor: Tensor
    needed: bool
    sizes: Sizes


class Contents(NamedTuple):
    """What a checked file holds."""

    tensors: list[Expected]
    sizes: Sizes
    kernel: Any  # as JSON


def check_header(declared: Declared, meta: Meta, own_bytes: int = 0) -> Contents:
    """Raise BadFile for JSON outside the schema, and for tensors of other names, types, shapes or sizes than it says.

    `own_bytes` is the size of a kernel of the user's own.
    """
    sizes = _find_sizes(declared, meta)
    schema.check_facts(meta, schema.FACTS, meta["format"], sizes)
    kernel = find_kernel(declared, meta)
    expected = list(_expect(declared, meta, kernel, sizes))
    for item in expected:
        if item.name in declared:
            _check_entry(item, declared[item.name], declared["mean"].dtype)
        elif item.needed:
            raise BadFile(f"the file lacks the tensor {item.name!r:.100}.")
    _check_others(declared, {item.name for item in expected}, _own_parts(kernel), own_bytes, sizes)
    return Contents(expected, sizes, kernel)


def check_values(arrays: Arrays, contents: Contents) -> None:
    """Raise BadFile for values outside their range, and for tensors that contradict each other."""
    known = {item.name: item for item in contents.tensors}
    for name, array in arrays.items():
        if name in known:
            known[name].tensor.range.check(name, array, known[name].sizes)
        elif not name.startswith(schema.FREE):
            FINITE.check(name, array, contents.sizes)
    groups = [array for name, array in arrays.items() if name in known and name.endswith(".group")]
    G = contents.sizes["G"]
    if any(not np.array_equal(g, groups[0]) or len(np.unique(g)) != G for g in groups):
        raise BadFile("the groups of columns that share lengthscales do not fit together.")
    for at, kernel, arguments in walk(contents.kernel):
        if kernel == "Ranked":
            _check_ranks(arrays, at, arguments)


def _find_sizes(declared: Declared, meta: Meta) -> Sizes:
    """Return the numbers that the letters of shapes stand for."""
    for name in ("mean", "prior.center", "prior.inducing"):
        if name not in declared:
            raise BadFile(f"the file lacks the tensor {name!r}.")
        if not declared[name].shape:
            raise BadFile(f"{name} has shape ().")
    labels = meta.get("classes")
    n_classes = None if labels is None else len(unpack_labels(labels))
    if (n_classes is None, meta.get("units") is None) != (
        (meta["kind"] == "regressor"),
        (meta["kind"] == "model"),
    ):
        raise BadFile("a classifier has classes, and a regressor has units of its targets.")
    rows = declared["mean"].shape[0]
    C = rows if n_classes is None else 1 if n_classes == 2 else n_classes
    D, H = declared["prior.center"].shape[0], declared["prior.inducing"].shape[-2]
    M = H * (2 if meta["prior"].get("spectrum") else 1)  # a frequency has a cosine and a sine
    if not C * D * M:
        raise BadFile("the file lacks inducing points or columns.")
    B, K = 1 if n_classes is not None and rows < C else C, meta["prior"]["kernels"]
    if K not in (1, C) or isinstance(K, bool):
        raise BadFile(f"the kernel has {K!r:.20} sets of parameters for {C} latent functions.")
    prepare = meta.get("preparation")
    columns = len(prepare["features"]) if isinstance(prepare, dict) and "features" in prepare else D
    counts = {f"{kind} members": len((meta.get(kind) or {"boosted": ()})["boosted"]) for kind in TREES}
    grouped = [
        e.shape[1] for name, e in declared.items() if name.endswith(".log_lengthscale") and len(e.shape) > 1
    ]
    G = min([D, *grouped]) if any(name.endswith(".group") for name in declared) else D
    sizes = {"C": C, "D": D, "H": H, "M": M, "B": B, "W": C // B * M, "K": K, "G": G, "columns": columns}
    return sizes | counts | {"classes": n_classes or 0}


def find_kernel(declared: Any, meta: Meta) -> Any:
    """Return the kernel as JSON: the selected one, the given one, or the default."""
    selected = (meta.get("selection") or {}).get("kernel")
    found = selected or meta["arguments"].get("kernel")
    if found is not None:
        return found
    if "prior.kernel.k2.log_lengthscale" not in declared:
        return RBF
    return {"kernel": "Sum", "arguments": {"k1": RBF, "k2": LINEAR}}


def walk(kernel: Any, at: str = "prior.kernel") -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    """Yield where each part of a kernel is, its class and its arguments; no class for a part that the schema does not know."""
    if not isinstance(kernel, dict) or "same" in kernel:
        return  # a kernel that is used twice is stored once
    name, arguments = kernel.get("kernel"), kernel.get("arguments")
    if name not in schema.KERNELS or not isinstance(arguments, dict):
        yield at, None, {}
        return
    yield at, name, arguments
    for part in ("k1", "k2", "base"):
        if part in arguments:
            yield from walk(arguments[part], f"{at}.{part}")


def _own_parts(kernel: Any) -> tuple[str, ...]:
    return tuple(f"{at}." for at, name, _ in walk(kernel) if name is None)


def _expect(declared: Declared, meta: Meta, kernel: Any, sizes: Sizes) -> Iterator[Expected]:
    """Yield the tensors that the file of this JSON must have, or may have."""

    def rows(tensors: tuple[Tensor, ...], prefix: str = "", sizes: Sizes = sizes) -> Iterator[Expected]:
        for tensor in tensors:
            yield Expected(
                prefix + tensor.name.removesuffix("?"), tensor, not tensor.name.endswith("?"), sizes
            )

    yield from rows(schema.MODEL)
    noise = "log_noise" if "noise" in meta["prior"]["learn"] else "fixed_noise"
    if f"prior.{noise}" not in declared or sum(f"prior.{n}_noise" in declared for n in ("log", "fixed")) != 1:
        raise BadFile(f"the file lacks the tensor 'prior.{noise}', or has another noise.")
    for at, name, _ in walk(kernel):
        scope = dict(sizes) if name == "Ranked" else sizes
        yield from rows(schema.KERNELS.get(name or "", ()), f"{at}.", scope)
    if any(name.startswith("rows.") for name in declared):
        yield from rows(schema.ROWS)
    if meta.get("growing") is not None:
        if not _own_parts(kernel):
            sizes |= _count_learnt(declared, meta["prior"]["learn"])
        yield from rows(schema.GROWING)
        optimiser = (schema.OPTIMISER._replace(name=str(i)) for i in range(meta["growing"]["optimiser"]))
        yield from rows(tuple(optimiser), schema.OPTIMISER.name)
    for kind in TREES:
        for i, boosted in enumerate((meta.get(kind) or {"boosted": ()})["boosted"]):
            n = sizes["classes"]
            of = {
                "boosted": int(boosted),
                "leaf": 1 if boosted else n,
                "scores": 1 if boosted and n == 2 else n,
            }
            yield from rows(schema.TREES, f"{kind}.{i}.", sizes | of)


def _count_learnt(declared: Declared, learn: list[str]) -> Sizes:
    """Return how many numbers are learnt, and how many of them are logarithms of the prior."""

    def count(*names: str) -> int:
        return sum(math.prod(declared[name].shape) for name in names)

    kernel = [name for name in declared if name.startswith("prior.kernel.") and ".log_" in name]
    logs = count(*(kernel if "kernel" in learn else ()), *(("prior.log_noise",) if "noise" in learn else ()))
    own = [name for name in declared if name.startswith("factor.") and name != "factor.epsilon"]
    return {"Q": logs, "P": logs + count(*own, *(("prior.inducing",) if "inducing" in learn else ()))}


def _check_entry(item: Expected, entry: persist.Entry, of_model: str) -> None:
    """Check type and shape of a tensor; letters without a meaning get one."""
    name, (_, shape, dtype, _), _, sizes = item
    types = schema.FLOAT if dtype == schema.T else dtype
    fits = entry.dtype in types.split("|") and (dtype != schema.T or entry.dtype == of_model)
    options = shape.split("|") if shape.startswith("|") else [shape]
    if (math.prod(entry.shape) and not fits) or not any(
        _fits(option.split(), entry.shape, sizes) for option in options
    ):
        wanted = " ".join(f"{part}={sizes[part]}" if part in sizes else part for part in shape.split())
        kind = of_model if dtype == schema.T and of_model in types else types.replace("|", " or ")
        raise BadFile(
            f"{name:.100} has shape {entry.shape} and type {entry.dtype}; expected ({wanted}), {kind}."
        )


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


def _check_others(
    declared: Declared, known: set[str], own: tuple[str, ...], own_bytes: int, sizes: Sizes
) -> None:
    """Check names, types and sizes of tensors whose shape only a kernel, a likelihood or an argument of the user's knows."""
    others = {name: entry for name, entry in declared.items() if name not in known}
    for name, entry in others.items():
        if not name.startswith((*schema.FREE, *own, "factor.")):
            why = (
                "not known to this kernel: create kernel= as for the fit"
                if name.startswith("prior.")
                else "not known: update cavity"
            )
            raise BadFile(f"the tensor {name!r:.100} is {why}.")
        if not name.startswith(schema.FREE) and entry.dtype not in ("F64", "F32", "I64"):
            raise BadFile(f"{name!r:.100} is of type {entry.dtype}, which no model has.")
    core = own_bytes + sum(declared[name].size for name in CORE)
    if sum(entry.size for entry in others.values()) > ROOM * core + LEAST:
        name = max(others, key=lambda n: others[n].size)
        raise BadFile(
            f"the tensor {name!r:.100} of {others[name].size} bytes is larger than a model of {sizes['C']} latent functions, "
            f"{sizes['M']} inducing points and {sizes['D']} columns needs."
        )
    if sum(entry.size for name, entry in declared.items() if name.startswith(TREES)) > MOST_TREES:
        raise BadFile(f"the trees of the model take more than {MOST_TREES >> 20} MB.")


def _check_ranks(arrays: Arrays, at: str, arguments: dict[str, Any]) -> None:
    """Check that the knots of a kernel on ranks are those of its arguments."""
    place, left, height, slope, last = (arrays[f"{at}.{t.name}"] for t in schema.RANKS)
    knots, scores = (np.asarray(arrays[arguments[name]["array"]], left.dtype) for name in ("knots", "scores"))
    width, rise = np.diff(knots, axis=0), np.diff(scores, axis=0)
    expected = np.divide(rise, width, out=np.zeros_like(width), where=width > 0)
    columns = arguments["columns"].get("list", arguments["columns"].get("tuple"))
    pairs = ((left, knots[:-1].T), (last, knots[-1]), (height, scores[:-1].T))
    same = all(np.array_equal(a, b) for a, b in pairs) and np.allclose(slope, expected.T, rtol=1e-3)
    counted = all(isinstance(d, int) and not isinstance(d, bool) for d in columns)
    if (
        not same
        or not counted
        or columns != place.tolist()
        or len(set(columns)) < len(columns)
        or (width < 0).any()
    ):
        raise BadFile("the knots of the kernel on ranks do not fit together.")


def check_factor(covariance: NDArray[Any], lower: NDArray[Any]) -> None:
    """Raise BadFile unless L Lᵀ = k(Z, Z) + jitter · I of one latent function, both [M M].

    A random vector v is multiplied instead of matrices: L (Lᵀ v) takes M² operations.
    """
    K, L = covariance.astype(np.float64), lower.astype(np.float64)
    L = np.tril(L)
    v = np.random.default_rng().choice([-1.0, 1.0], len(L))
    variance, excess = np.diagonal(K), (L**2).sum(1) - np.diagonal(K)
    close = ROUNDING[lower.dtype.name] * variance.max()
    jitter = excess.mean()
    holds = (
        -close <= jitter <= JITTER * variance.mean() + close
        and (np.abs(excess - jitter) <= close).all()
        and (np.abs(L @ (L.T @ v) - K @ v - jitter * v) <= len(L) * close).all()
    )
    if not holds:
        raise BadFile("prior_lower is not the Cholesky factor of the kernel at the inducing points.")
