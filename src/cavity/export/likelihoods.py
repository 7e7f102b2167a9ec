"""From marginals of the latent values to class probabilities: the integrals of prediction, as graphs. [METHOD 8]"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev
from scipy.special import erfcx

from cavity.errors import BadOption
from cavity.factors import BinaryProbit, Logistic, ProbitPairs, RobustBinary, RobustMax, Softmax
from cavity.onnx_graph import Value
from cavity.quadrature import MANY, MOST_EDGES, ORDER, SPREAD
from cavity.quadrature.argmax import REACH
from cavity.quadrature.softmax import INNER, OUTER
from cavity.quadrature.softmax import REACH as SOFTMAX_REACH

SPAN = (-4.0, 20.0)  # how far the softmax's outer nodes go beyond the latent values
SADDLE, DEGREE = 3.0, 12  # of the polynomial for erfc: relative error 3e-9


def probabilities(factor: Any, mean: Value, var: Value, n_latent: int) -> Value:
    """[n C], rows sum to one; from [n C], or [n 1] for two classes."""
    integral = next((f for kind, f in INTEGRALS.items() if isinstance(factor, kind)), None)
    if integral is None or getattr(factor, "probit", False):
        what = "predictive='probit'" if integral else f"the likelihood {type(factor).__name__}"
        raise BadOption(f"{what} cannot be written as an ONNX graph.")
    p = integral(mean, var, n_latent)
    p = p / p.sum(1, keep=True)
    if isinstance(factor, RobustMax | RobustBinary):
        p = p * (1 - factor.epsilon) + factor.epsilon / factor._classes()
    return p


def _ndtr(z: Value) -> Value:
    r"""Φ(z), z of any shape: half of erfc(|x|) = exp(−x²) g(y)/(1 + 2|x|), x = z/√2, or one minus it.

    onnxruntime has no Erf of float64. g is smooth in y = (|x| − 3)/(|x| + 3): a polynomial, fitted here.
    """
    graph = z.graph
    x = graph.op("Abs", z) * math.sqrt(0.5)
    y = (x - SADDLE) / (x + SADDLE)
    g = graph.value(_COEFFICIENTS[-1])
    for coefficient in _COEFFICIENTS[-2::-1]:
        g = y * g + coefficient
    tail = (-(x * x)).exp() * g / (x * 4.0 + 2.0)
    return graph.op("Where", graph.op("Less", z, 0.0), tail, -tail + 1.0)


def _fitted() -> Any:
    y = np.cos(np.pi * (np.arange(400) + 0.5) / 400)
    x = SADDLE * (1 + y) / (1 - y)
    return chebyshev.cheb2poly(chebyshev.chebfit(y, (1 + 2 * x) * erfcx(x), DEGREE))


_COEFFICIENTS = tuple(float(c) for c in _fitted())


def _legendre(edges: Value, count: int) -> tuple[Value, Value]:
    """Nodes and weights [n Q] of eight-point rules between neighbours of sorted edges [n count]."""
    at, weight = np.polynomial.legendre.leggauss(ORDER)
    low, high = edges.part(1, 0, count - 1), edges.part(1, 1, count)
    half, mid = ((high - low) * 0.5).new_axis(2), ((high + low) * 0.5).new_axis(2)
    Q = ORDER * (count - 1)
    return (mid + half * at).shaped(-1, Q), (half * weight).shaped(-1, Q)


def _bumps(mean: Value, sd: Value, count: int) -> Value:
    """Sorted breakpoints [n 13·count] around bumps [n count]."""
    E = len(SPREAD) * count
    edges = (mean.new_axis(2) + sd.new_axis(2) * np.array(SPREAD)).shaped(-1, E)
    return edges.graph.op("TopK", edges, np.array([E]), axis=1, largest=0, sorted=1)


def _argmax(mean: Value, var: Value, C: int) -> Value:
    sd = var.sqrt()
    edges, count = _bumps(mean, sd, C), len(SPREAD) * C
    if C > MANY:
        edges, count = _thin(edges, mean, sd, count), MOST_EDGES
    nodes, weight = _legendre(edges, count)
    z = (nodes.new_axis(2) - mean.new_axis(1)) / sd.new_axis(1)  # [n Q C]
    log_cdf = _ndtr(z).at_least(1e-300).log()
    density = (log_cdf.sum(2, keep=True) - log_cdf - z * z * 0.5).exp() / sd.new_axis(1)
    return (density * weight.new_axis(2)).sum(1)


def _thin(edges: Value, mean: Value, sd: Value, count: int) -> Value:
    """Evenly spaced ranks of the edges between where the largest value can begin and end."""
    op = edges.graph.op
    floor = (mean - sd * REACH).max(1, keep=True)
    ceiling = (mean + sd * REACH).max(1, keep=True)
    double = edges.graph.onnx.TensorProto.DOUBLE
    below = op("Cast", op("LessOrEqual", edges, floor), to=double).sum(1, keep=True) - 1.0
    above = op("Cast", op("Less", edges, ceiling), to=double).sum(1, keep=True)
    below, above = below.at_least(0.0), above.at_most(count - 1.0)
    rank = op("Round", below + (above - below) * np.linspace(0, 1, MOST_EDGES)[None])
    inside = edges.at_least(floor).at_most(ceiling)
    integer = op("Cast", rank, to=edges.graph.onnx.TensorProto.INT64)
    return op("GatherElements", inside, integer, axis=1)


def _probit(mean: Value, var: Value, C: int) -> Value:
    return _ndtr((mean / var.sqrt()) * np.array([[-1.0, 1.0]]))


def _logistic(mean: Value, var: Value, C: int) -> Value:
    sd = var.sqrt()
    op = mean.graph.op
    both, widths = op("Concat", mean, mean * 0.0, axis=1), op("Concat", sd, sd * 0.0 + 1.0, axis=1)
    nodes, weight = _legendre(_bumps(both, widths, 2), 2 * len(SPREAD))
    z = (nodes - mean) / sd
    mass = ((z * z * -0.5).exp() * weight).new_axis(2)
    return (op("Sigmoid", nodes.new_axis(2) * np.array([-1.0, 1.0])) * mass).sum(1)


def _softmax(mean: Value, var: Value, C: int) -> Value:
    """The derivative of E log Σ exp f_c, by the trapezoidal rules of `quadrature/softmax.py`."""
    graph, sd = mean.graph, var.sqrt()
    level = graph.op("ReduceLogSumExp", mean + var * 0.5, np.array([1]), keepdims=1)  # [n 1]
    low = level.at_most((mean - sd * SOFTMAX_REACH).max(1, keep=True)) + SPAN[0]
    high = level.at_least((mean + sd * SOFTMAX_REACH).max(1, keep=True)) + SPAN[1]
    x = low + (high - low) * np.linspace(0, 1, OUTER)[None]  # [n J]
    z = np.linspace(-SOFTMAX_REACH, SOFTMAX_REACH, INNER)
    weight = graph.value(np.exp(-0.5 * z * z) / np.exp(-0.5 * z * z).sum())
    f = mean.new_axis(2) + sd.new_axis(2) * z  # [n C I]
    w = (f.new_axis(2) - x.new_axis(1, 3)).at_most(6.5).exp()  # [n C J I]
    e = (-w).exp()
    log_F = (e @ weight).at_least(1e-300).at_most(1.0).log()  # [n C J]
    return ((w * e) @ weight * (log_F.sum(1, keep=True) - log_F).exp()).sum(2)


INTEGRALS: dict[type, Callable[[Value, Value, int], Value]] = {
    ProbitPairs: _argmax,
    RobustMax: _argmax,
    Softmax: _softmax,
    BinaryProbit: _probit,
    RobustBinary: _probit,
    Logistic: _logistic,
}
