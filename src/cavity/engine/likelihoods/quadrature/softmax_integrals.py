"""Averages of the softmax over independent normals. [docs/decisions/0007]"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from cavity.common.linalg import concatenate
from cavity.common.namespaces import Array, in_torch, namespace
from cavity.common.onnx_graph import Value
from cavity.common.torch_namespace import constant
from cavity.engine.likelihoods.normal_tails import LOG_SQRT_2PI, log_normal_pdf
from cavity.engine.likelihoods.quadrature.grid import bumps, piecewise_legendre

INNER = 48  # trapezoidal nodes over a normal, or over a Gumbel variable
OUTER = 128  # trapezoidal nodes over the largest of f_c + Gumbel
REACH = 8.5  # standard deviations on either side that nodes cover
BYTES = 8 << 20  # size of an array over the nodes of a few rows
WIDE = 3.0  # standard deviation above which these nodes are too few
GUMBEL = (-4.0, 21.0)  # a standard Gumbel variable lies outside with probability 1e-9
EULER = 0.5772156649015329  # mean of a standard Gumbel variable
LARGEST = 6.5  # exp(−exp(6.5)) is negligible

_Z = np.linspace(-REACH, REACH, INNER)
_MASS = np.exp(-0.5 * _Z**2)
NODES = tuple(_Z.tolist())
WEIGHTS = tuple((_MASS / _MASS.sum()).tolist())
SHARES = tuple(np.linspace(0, 1, OUTER).tolist())


class Average(NamedTuple):
    """E log Σ_c exp f_c or E log σ(f), and its derivatives."""

    value: Tensor  # [B]
    dm: Tensor  # [B C], E softmax_c, or E σ(−f)
    dv: Tensor  # [B C]


class Distribution(NamedTuple):
    """Distribution functions of f_c + Gumbel at nodes x, each [n C J]."""

    F: Array  # P(f_c + G_c ≤ x)
    B: Array  # −∂F/∂m_c
    D: Array  # ∂²F/∂m_c²


def softmax_average(mean: Tensor, var: Tensor) -> Average:
    r"""Return E log Σ exp f_c for f_c ~ N(m_c, v_c), [B C].

    log Σ exp f_c + γ is the mean of max_c (f_c + G_c), G_c standard Gumbel, whose
    distribution function is a product:

        F_c(x) = P(f_c + G_c ≤ x) = E exp(−exp(f_c − x))
        E log Σ exp f_c = ℓ + ∫ [exp(−exp(ℓ − x)) − Π_c F_c(x)] dx
        ∂/∂m_c = ∫ −∂F_c/∂m_c Π_{k≠c} F_k dx        ∂/∂v_c: with ½ ∂²F_c/∂m_c²

    Any ℓ will do; ℓ = log Σ exp(m_c + v_c/2) cancels the tails.

    Both integrands are analytic and decay fast on both sides, so the trapezoidal rule
    converges exponentially. It fails if an f_c is so wide that its nodes are farther
    apart than the width of a Gumbel variable. Such rows use another grid.
    """
    recorded = mean.is_cuda and torch.cuda.is_current_stream_capturing()
    wide = (var > WIDE**2).any(-1)
    # a recorded step cannot branch on its rows
    if recorded or not bool(wide.any()):
        return _in_pieces(_average, OUTER, mean, var)

    narrow = _in_pieces(_average, OUTER, mean[~wide], var[~wide])
    other = _average_wide_rows(mean[wide], var[wide])
    found = Average(mean.new_empty(len(mean)), 0 * mean, 0 * mean)
    for whole, part, wide_part in zip(found, narrow, other, strict=True):
        whole[~wide] = part
        whole[wide] = wide_part
    return found


def _in_pieces(average: Callable[..., Average], nodes: int, *rows: Tensor) -> Average:
    """Average a few rows at a time, so that arrays over their nodes stay small."""
    size = max(1, BYTES // (8 * rows[0].shape[1] * INNER * nodes))
    pieces = zip(*(torch.split(r, size) for r in rows), strict=True)
    return concatenate([average(*piece) for piece in pieces])


def _average(mean: Tensor, var: Tensor) -> Average:
    level, step, x = _place_outer(mean, var)
    w, F, B = _sum_narrow(mean, var.sqrt(), x)
    D = _second_derivative(w, B)
    total, others = _multiply(F)
    tail = (-(level - x).clamp(max=LARGEST).exp()).exp() - total[:, 0].exp()
    value = level[:, 0] + tail.sum(-1) * step[:, 0]
    dm = (B * others).sum(-1) * step
    dv = -0.5 * (D * others).sum(-1) * step
    return Average(value, dm, dv)


def _average_wide_rows(mean: Tensor, var: Tensor) -> Average:
    """Average wide rows, on grids around the bumps of their classes."""
    reach = REACH * var.sqrt()
    low = (mean - reach).amax(-1, keepdim=True) - 4
    high = (mean + reach).amax(-1, keepdim=True) + 20
    sd = (var + math.pi**2 / 6).sqrt()  # of f_c + G_c
    edges = bumps(mean + EULER, sd).clamp(low, high)
    edges[:, 0] = low[:, 0]
    edges[:, -1] = high[:, 0]
    grid = piecewise_legendre(edges)
    nodes = grid.nodes.shape[-1]
    return _in_pieces(_wide_average, nodes, mean, var, high[:, 0], *grid)


def _wide_average(
    mean: Tensor, var: Tensor, high: Tensor, x: Tensor, log_weights: Tensor
) -> Average:
    """Average as E max = high − ∫ Π_c F_c, where the maximum does not exceed `high`."""
    F, B, D = find_distribution(mean, var.sqrt(), x)
    total, others = _multiply(F)
    weight = log_weights.exp()
    others *= weight[:, None]
    value = high - EULER - (total[:, 0].exp() * weight).sum(-1)
    return Average(value, (B * others).sum(-1), -0.5 * (D * others).sum(-1))


def find_distribution(mean: Tensor, sd: Tensor, x: Tensor) -> Distribution:
    """Return F_c at x with derivatives, [n C J].

    A narrow f_c is summed over its own nodes, a wide one over its Gumbel variable.
    """
    w, F, B = _sum_narrow(mean, sd, x)
    narrow = Distribution(F, B, _second_derivative(w, B))
    g = torch.linspace(*GUMBEL, INNER, dtype=x.dtype, device=x.device)
    weight = torch.softmax(-g - (-g).exp(), 0)
    off = x[:, None, :, None] - g - mean[..., None, None]
    u = off / sd[..., None, None]  # [n C J I]
    bell = log_normal_pdf(u).exp()
    width = sd[..., None]
    wide = Distribution(
        torch.special.ndtr(u) @ weight,
        bell @ weight / width,
        -((u * bell) @ weight) / width**2,
    )
    either = zip(wide, narrow, strict=True)
    return Distribution(*(torch.where(width > WIDE, a, b) for a, b in either))


def _sum_narrow(mean: Array, sd: Array, x: Array) -> tuple[Array, Array, Array]:
    """Return w = exp(f_c − x) at nodes of f_c, [n C J I], F_c at x and −∂F_c/∂m_c.

    The latter are sums by the trapezoidal rule over these nodes, each [n C J].
    """
    xp = namespace(mean)
    f = mean[..., None] + sd[..., None] * xp.constant(NODES, mean)  # [n C I]
    w = xp.exp(xp.minimum(f[:, :, None] - x[:, None, :, None], LARGEST))
    e = xp.exp(-w)
    weight = xp.constant(WEIGHTS, mean)
    return w, e @ weight, (w * e) @ weight


def _second_derivative(w: Tensor, B: Tensor) -> Tensor:
    """Return ∂²F_c/∂m_c² = E w² exp(−w) − B, from the results of `_sum_narrow`."""
    return (w * w * (-w).exp()) @ constant(WEIGHTS, B) - B


def _place_outer(mean: Array, var: Array) -> tuple[Array, Array, Array]:
    """Return ℓ and the step, each [n 1], and the nodes x, [n J]."""
    xp = namespace(mean)
    reach = REACH * xp.sqrt(var)
    each = mean + 0.5 * var
    top = xp.max(each)
    level = top + xp.logsumexp(each - top, 1)[:, None]
    low = xp.minimum(level, xp.max(mean - reach)) - 4
    high = xp.maximum(level, xp.max(mean + reach)) + 20
    length = high - low
    return level, length / (OUTER - 1), low + length * xp.constant(SHARES, mean)


def _multiply(F: Array) -> tuple[Array, Array]:
    """Return log Π_c F_c, [n 1 J], and Π_{k≠c} F_k, [n C J]."""
    xp = namespace(F)
    log_F = xp.log(xp.clip(F, 1e-300, 1.0))
    total = log_F.sum(1)[:, None]
    return total, xp.exp(total - log_F)


def expected_softmax(mean: Array, var: Array) -> Array:
    """Return E softmax(f), [n C], not normalised: the derivative of `softmax_average`.

    In a graph, only for rows that are narrow.
    """
    if isinstance(mean, np.ndarray):
        return in_torch(expected_softmax, mean, var)
    if not isinstance(mean, Value):
        return softmax_average(mean, var).dm

    _, step, x = _place_outer(mean, var)
    _, F, B = _sum_narrow(mean, var.sqrt(), x)
    _, others = _multiply(F)
    return (B * others).sum(2) * step


def sigmoid_average(mean: Tensor, var: Tensor) -> Average:
    """Return E log σ(f) for f ~ N(m, v), any shape."""
    nodes, log_p = _sigmoid_grid(mean, var)
    p = log_p.exp()
    s = nodes.sigmoid()
    return Average(
        (p * logsigmoid(nodes)).sum(-1),
        (p * (1 - s)).sum(-1),
        (-0.5 * (p * s * (1 - s))).sum(-1),
    )


def log_sigmoid_probability(mean: Array, var: Array) -> tuple[Array, Array]:
    """Return log E σ(−f) and log E σ(f) for f ~ N(m, v), each [n]."""
    xp = namespace(mean)
    nodes, log_p = _sigmoid_grid(mean, var)
    below = xp.logsumexp(log_p + xp.log_sigmoid(-nodes), 1)
    above = xp.logsumexp(log_p + xp.log_sigmoid(nodes), 1)
    return below, above


def _sigmoid_grid(mean: Array, var: Array) -> tuple[Array, Array]:
    """Return nodes where N(m, v) or the logistic curve bends, and log N there.

    The logarithms include those of the weights.
    """
    xp = namespace(mean)
    sd = xp.sqrt(var)
    edges = bumps(xp.stack([mean, 0 * mean]), xp.stack([sd, 0 * sd + 1]))
    nodes, log_weights = piecewise_legendre(edges)
    z = (nodes - mean[..., None]) / sd[..., None]
    return nodes, log_weights - 0.5 * z * z - (xp.log(sd) + LOG_SQRT_2PI)[..., None]
