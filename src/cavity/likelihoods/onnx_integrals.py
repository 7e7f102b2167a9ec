"""The integrals of prediction as ONNX graphs: from marginals of f to class probabilities. [METHOD 8]"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.polynomial import chebyshev

from cavity.common.onnx_graph import Value
from cavity.likelihoods.quadrature import MANY, MOST_EDGES, ORDER, SPREAD
from cavity.likelihoods.quadrature.argmax import REACH
from cavity.likelihoods.quadrature.softmax import INNER, OUTER
from cavity.likelihoods.quadrature.softmax import REACH as SOFTMAX_REACH

SPAN = (-4.0, 20.0)  # how far the outer nodes of the softmax go beyond the latent values
SADDLE, DEGREE = 3.0, 12  # of the polynomial for erfc: relative error 3e-9


def normalised(p: Value) -> Value:
    """Divide by the sum of each row."""
    return p / p.sum(1, keep=True)


def _ndtr(z: Value) -> Value:
    r"""Φ(z), z of any shape: half of erfc(|x|) = exp(−x²) g(y)/(1 + 2|x|), x = z/√2, or one minus it.

    onnxruntime has no Erf of float64. g is smooth in y = (|x| − 3)/(|x| + 3): a polynomial, fitted here.
    """
    graph = z.graph
    x = graph.op("Abs", z) * math.sqrt(0.5)
    y = (x - SADDLE) / (x + SADDLE)
    *lower, highest = _coefficients()
    g = graph.value(highest)
    for coefficient in reversed(lower):
        g = y * g + coefficient
    tail = (-(x * x)).exp() * g / (x * 4.0 + 2.0)
    return graph.op("Where", graph.op("Less", z, 0.0), tail, -tail + 1.0)


@cache
def _coefficients() -> tuple[float, ...]:
    """Coefficients of g, the lowest first."""
    from scipy.special import erfcx

    y = np.cos(np.pi * (np.arange(400) + 0.5) / 400)
    x = SADDLE * (1 + y) / (1 - y)
    fitted = chebyshev.cheb2poly(chebyshev.chebfit(y, (1 + 2 * x) * erfcx(x), DEGREE))
    return tuple(float(c) for c in fitted)


def _legendre(edges: Value, count: int) -> tuple[Value, Value]:
    """Return nodes and weights [n Q] of eight-point rules between neighbours of sorted edges [n count]."""
    at, weight = np.polynomial.legendre.leggauss(ORDER)
    low, high = edges.part(1, 0, count - 1), edges.part(1, 1, count)
    half, mid = ((high - low) * 0.5).new_axis(2), ((high + low) * 0.5).new_axis(2)
    Q = ORDER * (count - 1)
    return (mid + half * at).shaped(-1, Q), (half * weight).shaped(-1, Q)


def _bumps(mean: Value, sd: Value, count: int) -> Value:
    """Return sorted breakpoints [n 13·count] around bumps [n count]."""
    E = len(SPREAD) * count
    edges = (mean.new_axis(2) + sd.new_axis(2) * np.array(SPREAD)).shaped(-1, E)
    return edges.graph.op("TopK", edges, np.array([E]), axis=1, largest=0, sorted=1)


def argmax_graph(mean: Value, var: Value, C: int) -> Value:
    """P(f_c is the largest), [n C]: the integral of `likelihoods/quadrature/argmax.py`."""
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
    """Keep edges of evenly spaced ranks, between the lowest and the highest place of the largest value."""
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


def probit_graph(mean: Value, var: Value) -> Value:
    """Φ(∓m/√v), [n 1] → [n 2]."""
    return _ndtr((mean / var.sqrt()) * np.array([[-1.0, 1.0]]))


def logistic_graph(mean: Value, var: Value) -> Value:
    """E σ(∓f), [n 1] → [n 2], not normalised."""
    sd = var.sqrt()
    op = mean.graph.op
    both, widths = op("Concat", mean, mean * 0.0, axis=1), op("Concat", sd, sd * 0.0 + 1.0, axis=1)
    nodes, weight = _legendre(_bumps(both, widths, 2), 2 * len(SPREAD))
    z = (nodes - mean) / sd
    mass = ((z * z * -0.5).exp() * weight).new_axis(2)
    return (op("Sigmoid", nodes.new_axis(2) * np.array([-1.0, 1.0])) * mass).sum(1)


def softmax_graph(mean: Value, var: Value) -> Value:
    """The derivative of E log Σ exp f_c, [n C], not normalised: the trapezoidal rules of `likelihoods/quadrature/softmax.py`."""
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
