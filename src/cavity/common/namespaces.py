"""Array namespaces: a formula is written once for NumPy, torch and ONNX graphs.

A formula uses operators (`+ − * / @`), `x[:, None]`, `X[:, columns]`, `.T` of a matrix,
and the functions of a namespace:

    array             a tensor or an array in this namespace
    largest           the largest number of the array's type
    exp, log, log1p, sqrt, abs, cos, sin, tanh, maximum, minimum, clip, where
                      as in NumPy; `exp_` and `minimum_` may overwrite their argument
    log_ndtr, log_sigmoid
                      log Φ(x) and log σ(x), accurate in both tails
    may_exceed        whether some |x| may be above a number: True where the values are
                      not known, or take long to read
    max, sum          over the last axis, which stays; max also over another one
    logsumexp         over one axis, which goes; in a graph the numbers must not
                      overflow, and the result is at least log TINY (onnxruntime is
                      wrong for a sum of no rows over an axis counted from the end)
    log_softmax       x − log Σ exp x over the last axis
    concat, stack     along the last axis, along a new last axis
    sort              along the last axis
    flatten           [n a b] → [n ab], in torch and NumPy also of more axes
    constant          numbers as an array like another
    swap              the last two axes swapped; in a graph, of three
    column_sum        Σ_m x_cmn, [C M n] → [C n]
    products          u·v of points [C M D] and rows [n D], [C M n]; in torch rows may
                      also be [C n D], for k(Z, Z)
    add_products_     offset + u·v; may overwrite the offset
    repeat_rows       x once for each row of X, [... 1] → [... n]
    solve_lower       lower⁻¹ B, [C M n]; solve_lower_t, lower⁻ᵀ B

NumPy and torch, whose values can be read, also have:

    erfcx             exp(x²) erfc(x)
    ceil, min, einsum, linalg
                      as in NumPy; min over the last axis, which stays
    arange            arange(n, like)
    find              places of the true values
    like              like(x, other): an array of any kind as an array like another
    double, host      in float64; as a NumPy array in float64
    join              arrays joined along their first axis

NumPy has erf and erfc, too. If the rows of a formula are values of a graph, its numbers
are NumPy arrays. This module does not load torch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from cavity.common.onnx_graph import Value
from cavity.common.slices import slices

SUBSTITUTED = 16  # rows of a triangle that are substituted one by one
CACHED = 1 << 12  # a long polynomial is evaluated at this many numbers at a time
LARGEST = float(np.finfo(np.float64).max)
TINY = float(np.finfo(np.float64).tiny)
SQRT_HALF = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
SADDLE = 3.75
# coefficients of (1 + 2x) erfcx(x) in y = (x − 3.75)/(x + 3.75), the highest power
# first: relative error 1e-15 for x ≥ 0
ERFCX = (
    -2.623107347133476e-09, -1.9551358868985616e-09, 3.197926671666804e-08, 1.879082322370048e-08,
    -2.4857126248016745e-07, -5.084465378687302e-08, 1.7419821586224816e-06, -9.792625707303523e-07,
    -1.1438048033346894e-05, 2.2387565714911816e-05, 5.164652974177416e-05, -0.00029015535246077655,
    0.000293714378044958, 0.0017556261651970652, -0.009746579683265262, 0.02836227737211114,
    -0.05869339857664934, 0.09230432116428125, -0.10880393014244462, 0.08227673848999506,
    0.0035854154854790257, -0.14024059858554525, 1.2375126308378275,
)  # fmt: skip
QUARTERS = np.append(ERFCX[::-1], 0.0).reshape(4, 6)  # the lowest power first
Array = Any  # a NumPy array, a tensor, or a value of a graph


def namespace(x: Array) -> Any:
    """Return the functions of an array's kind."""
    if isinstance(x, np.ndarray):
        return NUMPY
    if isinstance(x, Value):
        return GRAPH

    from cavity.common.torch_namespace import TORCH

    return TORCH


def _to_numpy(x: Any) -> Array:
    if not isinstance(x, np.ndarray):
        x = np.asarray(x.detach().cpu().numpy(), order="C")
    if x.dtype.kind == "f":
        return x.astype(np.float64, copy=False)

    return x


def _add_products(offset: Array, points: Array, V: Array) -> Array:
    offset += (points.reshape(-1, points.shape[-1]) @ V.T).reshape(offset.shape)
    return offset


def _repeat_rows(x: Array, X: Array) -> Array:
    if X.shape[-2] == 1:
        return x

    return np.broadcast_to(x, (*x.shape[:-1], X.shape[-2]))


def _solve_lower(lower: Array, B: Array) -> Array:
    """Substitute forward by halves, so that most of the work is products.

    NumPy would factorise the triangle again.
    """
    X = np.broadcast_to(B, (max(len(lower), len(B)), *B.shape[1:])).copy()
    _substitute(lower, X)
    return X


def _substitute(lower: Array, X: Array) -> None:
    M = X.shape[1]
    if M > SUBSTITUTED:
        half = M // 2
        _substitute(lower[:, :half, :half], X[:, :half])
        X[:, half:] -= lower[:, half:, :half] @ X[:, :half]
        _substitute(lower[:, half:, half:], X[:, half:])
        return

    for i in range(M):
        X[:, i] -= (lower[:, i, None, :i] @ X[:, :i])[:, 0]
        X[:, i] /= lower[:, i, i, None]


def _solve_lower_t(lower: Array, B: Array) -> Array:
    """Substitute backward: forward in the triangle turned around."""
    return _solve_lower(lower.swapaxes(-1, -2)[:, ::-1, ::-1], B[:, ::-1])[:, ::-1]


def _logsumexp(x: Array, axis: int) -> Array:
    top = x.max(axis, keepdims=True)
    return np.log(np.exp(x - top).sum(axis)) + top.squeeze(axis)


def _log_softmax(x: Array) -> Array:
    off = x - x.max(-1, keepdims=True)
    return off - np.log(np.exp(off).sum(-1, keepdims=True))


def in_torch(function: Callable[..., Any], *arrays: Array) -> Array:
    """Call a function of tensors with NumPy arrays."""
    import torch

    return function(*map(torch.tensor, arrays)).numpy()


def _log_sigmoid(xp: Any, x: Array) -> Array:
    return xp.minimum(x, 0.0) - xp.log1p(xp.exp(-xp.abs(x)))


def _erfcx_of_size(x: Array) -> Array:
    """Return erfcx(x) for x ≥ 0, as a polynomial.

    Neither NumPy nor onnxruntime has it, and SciPy loads slowly.
    """
    y = x - SADDLE
    y /= x + SADDLE
    if isinstance(y, np.ndarray):
        found = _evaluate(y)
        found /= 1.0 + 2.0 * x
        return found

    return functools.reduce(lambda sum, c: sum * y + c, ERFCX) / (1.0 + 2.0 * x)


def _evaluate(y: Array) -> Array:
    """Return the polynomial as four of degree 5, by one product.

    This takes a few calls of NumPy instead of dozens. It overwrites y.
    """
    powers = np.empty((6, *y.shape), y.dtype)
    powers[0] = 1
    powers[1] = y
    square = y * y
    np.multiply(powers[:2], square, out=powers[2:4])
    np.multiply(powers[2:4], square, out=powers[4:])
    quarters = QUARTERS.astype(y.dtype) @ powers.reshape(6, -1)
    *lower, found = quarters.reshape(4, *y.shape)
    y *= powers[5]
    for part in reversed(lower):
        found *= y
        found += part
    return found


def _in_cache(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Let a function of NumPy arrays take few numbers at a time, within the cache."""

    def call(x: Array) -> Array:
        if x.size <= CACHED:
            return function(x)

        flat = np.ascontiguousarray(x).reshape(-1)
        found = np.empty_like(flat)
        for some in slices(x.size, CACHED):
            found[some] = function(flat[some])
        return found.reshape(x.shape)

    return call


@_in_cache
def _erfcx(x: Array) -> Array:
    """Return exp(x²) erfc(x), which overflows below −26.6."""
    found = _erfcx_of_size(np.abs(x))
    below = x < 0
    if not below.any():
        return found

    left = x[below]
    with np.errstate(over="ignore"):
        found[below] = 2 * np.exp(left * left) - found[below]
    return found


@_in_cache
def _erfc(x: Array) -> Array:
    """Return 1 − erf(x), accurate in both tails."""
    found = np.exp(-x * x) * _erfcx_of_size(np.abs(x))
    return np.where(x < 0, 2 - found, found)


def _log_ndtr(xp: Any, z: Array) -> Array:
    """Return log Φ(z), accurate in both tails."""
    x = xp.abs(z) * SQRT_HALF
    half = 0.5 * _erfcx_of_size(x)
    below = xp.minimum(z, 0.0)
    with np.errstate(over="ignore"):
        right = 1.0 - xp.exp(-x * x) * half
        return xp.log(xp.where(z < 0.0, half, right)) - 0.5 * below * below


def _join(parts: list[Value]) -> Value:
    return parts[0].graph.op("Concat", *parts, axis=-1)


def _sort_in_graph(x: Value) -> Value:
    count = x.graph.op("Shape", x, start=-1)
    return x.graph.op("TopK", x, count, axis=-1, largest=0, sorted=1)


def _node(kind: str, in_numpy: Any = None, **attributes: Any) -> Callable[..., Any]:
    """Return the function that adds a node to the graph of its arguments.

    With NumPy arrays alone it computes the value.
    """

    def add(*arguments: Any) -> Any:
        graph = next((x.graph for x in arguments if isinstance(x, Value)), None)
        if graph is None:
            return in_numpy(*arguments)

        return graph.op(kind, *arguments, **attributes)

    return add


SAME = (
    "exp log log1p sqrt abs cos sin tanh maximum minimum where ceil linalg einsum sort"
)
NUMPY: Any = SimpleNamespace(
    **{name: getattr(np, name) for name in SAME.split()},
    array=_to_numpy,
    largest=lambda x: LARGEST,
    erf=lambda x: np.copysign(1 - np.exp(-x * x) * _erfcx_of_size(np.abs(x)), x),
    erfc=_erfc,
    erfcx=_erfcx,
    log_ndtr=_in_cache(lambda x: _log_ndtr(NUMPY, x)),
    log_sigmoid=lambda x: _log_sigmoid(NUMPY, x),
    # np.clip takes longer to start
    clip=lambda x, low, high: np.minimum(np.maximum(x, low), high),
    may_exceed=lambda x, most: np.maximum.reduce(np.abs(x), None) > most,
    exp_=lambda x: np.exp(x, out=x),
    minimum_=lambda x, high: np.minimum(x, high, out=x),
    # methods of arrays take twice as long to start
    max=lambda x, axis=-1: np.maximum.reduce(x, axis, keepdims=True),
    min=lambda x: np.minimum.reduce(x, -1, keepdims=True),
    sum=lambda x: np.add.reduce(x, -1, keepdims=True),
    swap=lambda x: x.swapaxes(-1, -2),
    like=lambda x, other: _to_numpy(x),
    double=_to_numpy,
    host=_to_numpy,
    join=np.concatenate,
    find=np.flatnonzero,
    arange=lambda n, like: np.arange(n, dtype=np.float64),
    half_steps=lambda n: np.arange(0.5, n),
    logsumexp=_logsumexp,
    log_softmax=_log_softmax,
    concat=lambda parts: np.concatenate(parts, -1),
    stack=lambda parts: np.stack(parts, -1),
    flatten=lambda x: x.reshape(*x.shape[:-2], -1),
    constant=lambda values, like: np.array(values),
    column_sum=lambda x: x.sum(1),
    products=lambda points, V: points @ V.T,
    add_products_=_add_products,
    repeat_rows=_repeat_rows,
    solve_lower=_solve_lower,
    solve_lower_t=_solve_lower_t,
)
GRAPH: Any = SimpleNamespace(
    **{
        kind.lower(): _node(kind)
        for kind in "Log Sqrt Abs Cos Sin Tanh Where Ceil".split()
    },
    largest=lambda x: LARGEST,
    exp=_node("Exp", np.exp),
    half_steps=lambda n: n.graph.op("Range", 0.5, n, 1.0),
    log1p=lambda x: (x + 1.0).log(),
    maximum=_node("Max"),
    minimum=_node("Min"),
    log_ndtr=lambda x: _log_ndtr(GRAPH, x),
    log_sigmoid=lambda x: _log_sigmoid(GRAPH, x),
    clip=lambda x, low, high: x.at_least(low).at_most(high),
    may_exceed=lambda x, most: True,
    exp_=_node("Exp"),
    minimum_=_node("Min"),
    max=lambda x, axis=-1: x.max(axis, keepdims=True),
    sum=lambda x: x.sum(-1, keepdims=True),
    logsumexp=lambda x, axis: x.exp().sum(axis).at_least(TINY).log(),
    log_softmax=_node("LogSoftmax", axis=-1),
    concat=_join,
    stack=lambda parts: _join([part[..., None] for part in parts]),
    sort=_sort_in_graph,
    flatten=_node("Flatten", axis=1),
    swap=_node("Transpose", perm=[0, 2, 1]),
    constant=lambda values, like: np.array(values),
    column_sum=lambda x: x.sum(1),
    products=lambda points, V: points @ V.T,
    add_products_=lambda offset, points, V: offset + points @ V.T,
    repeat_rows=lambda x, X: X.graph.op(
        "Expand", x, X.graph.op("Shape", X, start=0, end=1)
    ),
    # a product with the inverse, which is a constant of the graph
    solve_lower=lambda lower, B: _solve_lower(lower, np.eye(lower.shape[-1])[None]) @ B,
)
