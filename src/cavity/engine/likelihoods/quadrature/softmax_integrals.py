"""Averages of the softmax over independent normals, by one integral per row.
[docs/decisions/0007]
"""

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
REACH = 8.5
BYTES = 8 << 20  # of one array over a piece's nodes
WIDE = 3.0  # standard deviation above which these nodes are too few
GUMBEL = (-4.0, 21.0)  # a standard Gumbel variable lies outside with probability 1e-9
_EULER = 0.5772156649015329
_LARGEST = 6.5  # exp(−exp(6.5)) is negligible
_Z = np.linspace(-REACH, REACH, INNER)
_SHARES = tuple(np.linspace(0, 1, OUTER).tolist())
_MASS = np.exp(-0.5 * _Z**2)
_NODES = tuple(_Z.tolist())
_WEIGHTS = tuple((_MASS / _MASS.sum()).tolist())


class Average(NamedTuple):
    """E log Σ_c exp f_c or E log σ(f), and its derivatives."""

    value: Tensor  # [B]
    dm: Tensor  # [B C], E softmax_c, or E σ(−f)
    dv: Tensor  # [B C]


def softmax_average(mean: Tensor, var: Tensor) -> Average:
    r"""Return E log Σ exp f_c for f_c ~ N(m_c, v_c), [B C].

    log Σ exp f_c + γ is the mean of max_c (f_c + G_c), G_c standard Gumbel, whose
    distribution function is a product:

        F_c(x) = P(f_c + G_c ≤ x) = E exp(−exp(f_c − x))
        E log Σ exp f_c = ℓ + ∫ [exp(−exp(ℓ − x)) − Π_c F_c(x)] dx        any ℓ; ℓ = log Σ exp(m_c + v_c/2) cancels the tails
        ∂/∂m_c = ∫ −∂F_c/∂m_c Π_{k≠c} F_k dx        ∂/∂v_c: with ½ ∂²F_c/∂m_c²

    Both integrands are analytic and decay fast on both sides, so the trapezoidal rule
    converges exponentially. It fails if an f_c is so wide that its nodes are farther
    apart than the width of a Gumbel variable. Such rows use another grid.
    """
    wide = (var > WIDE**2).any(-1)
    recorded = (
        mean.is_cuda and torch.cuda.is_current_stream_capturing()
    )  # it cannot branch on its rows
    if recorded or not bool(wide.any()):
        return _average_in_pieces(_average, OUTER, mean, var)
    found = Average(
        torch.empty_like(mean[:, 0]), torch.empty_like(mean), torch.empty_like(mean)
    )
    narrow = _average_in_pieces(_average, OUTER, mean[~wide], var[~wide])
    for whole, *parts in zip(
        found, narrow, _average_wide_rows(mean[wide], var[wide]), strict=True
    ):
        whole[~wide], whole[wide] = parts
    return found


def _average_in_pieces(
    average: Callable[..., Average], nodes: int, *rows: Tensor
) -> Average:
    """Average a few rows at a time, so that arrays over their nodes stay small."""
    size = max(1, BYTES // (8 * rows[0].shape[1] * INNER * nodes))
    parts = [
        average(*piece)
        for piece in zip(*(torch.split(r, size) for r in rows), strict=True)
    ]
    return concatenate(parts)


def _average_wide_rows(m: Tensor, v: Tensor) -> Average:
    """Return the averages of wide rows, on grids around the bumps of their classes."""
    sd = (v + math.pi**2 / 6).sqrt()  # of f_c + G_c
    low = (m - REACH * v.sqrt()).amax(-1, keepdim=True) - 4
    high = (m + REACH * v.sqrt()).amax(-1, keepdim=True) + 20
    edges = bumps(m + _EULER, sd).clamp(low, high)
    edges[:, 0] = low[:, 0]
    edges[:, -1] = high[:, 0]
    grid = piecewise_legendre(edges)
    return _average_in_pieces(
        _wide_average, grid.nodes.shape[-1], m, v, high[:, 0], *grid
    )


def _wide_average(
    mean: Tensor, var: Tensor, high: Tensor, x: Tensor, log_weights: Tensor
) -> Average:
    """Return averages as E max = high − ∫ Π_c F_c up to `high`, which the largest value
    does not exceed.
    """
    F, B, D = find_distribution(mean, var.sqrt(), x, wide=True)
    total, others = _combine(F)
    others *= log_weights.exp()[:, None]
    value = high - _EULER - (total[:, 0].exp() * log_weights.exp()).sum(-1)
    return Average(value, (B * others).sum(-1), -0.5 * (D * others).sum(-1))


def find_distribution(
    mean: Tensor, sd: Tensor, x: Tensor, wide: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return F_c at x, −∂F_c/∂m_c and ∂²F_c/∂m_c², [n C J]; of a wide f_c as a sum over
    its Gumbel variable.
    """
    w, F, B = _sum_narrow(mean, sd, x)
    D = (w * w * (-w).exp()) @ constant(_WEIGHTS, mean) - B
    if not wide:
        return F, B, D
    g = torch.linspace(*GUMBEL, INNER, dtype=x.dtype, device=x.device)
    weight = torch.softmax(-g - (-g).exp(), 0)
    # [n C J I]
    u = (x[:, None, :, None] - g - mean[..., None, None]) / sd[..., None, None]
    bell = log_normal_pdf(u).exp()
    width = sd[..., None]
    by_gumbel = (
        torch.special.ndtr(u) @ weight,
        bell @ weight / width,
        -((u * bell) @ weight) / width**2,
    )
    F, B, D = (
        torch.where(width > WIDE, a, b)
        for a, b in zip(by_gumbel, (F, B, D), strict=True)
    )
    return F, B, D


def _sum_narrow(mean: Array, sd: Array, x: Array) -> tuple[Array, Array, Array]:
    """Return exp(f_c − x) at nodes of f_c, [n C J I], F_c at x and −∂F_c/∂m_c by the
    trapezoidal rule over them, each [n C J].
    """
    xp = namespace(mean)
    f = mean[..., None] + sd[..., None] * xp.constant(_NODES, mean)  # [n C I]
    w = xp.exp(xp.minimum(f[:, :, None] - x[:, None, :, None], _LARGEST))  # [n C J I]
    e = xp.exp(-w)
    weight = xp.constant(_WEIGHTS, mean)
    return w, e @ weight, (w * e) @ weight


def _place_outer(mean: Array, var: Array) -> tuple[Array, Array, Array]:
    """Return ℓ and the step, each [n 1], and the nodes x, [n J]."""
    xp = namespace(mean)
    sd = namespace(mean).sqrt(var)
    top = xp.max(mean + 0.5 * var)
    level = top + xp.logsumexp(mean + 0.5 * var - top, 1)[:, None]
    low = xp.minimum(level, xp.max(mean - REACH * sd)) - 4
    high = xp.maximum(level, xp.max(mean + REACH * sd)) + 20
    return (
        level,
        (high - low) / (OUTER - 1),
        low + (high - low) * xp.constant(_SHARES, mean),
    )


def _combine(F: Array) -> tuple[Array, Array]:
    """Return log Π_c F_c, [n 1 J], and Π_{k≠c} F_k, [n C J]."""
    xp = namespace(F)
    log_F = xp.log(xp.clip(F, 1e-300, 1.0))
    total = log_F.sum(1)[:, None]
    return total, xp.exp(total - log_F)


def _average(mean: Tensor, var: Tensor) -> Average:
    level, step, x = _place_outer(mean, var)
    F, B, D = find_distribution(mean, var.sqrt(), x, wide=False)
    total, others = _combine(F)
    tail = (-(level - x).clamp(max=_LARGEST).exp()).exp() - total[:, 0].exp()
    value = level[:, 0] + tail.sum(-1) * step[:, 0]
    return Average(
        value, (B * others).sum(-1) * step, -0.5 * (D * others).sum(-1) * step
    )


def expected_softmax(mean: Array, var: Array) -> Array:
    """Return E softmax(f), [n C], not normalised: the derivative of `softmax_average`.

    In a graph, of narrow rows only.
    """
    if isinstance(mean, np.ndarray):
        return in_torch(expected_softmax, mean, var)
    if not isinstance(mean, Value):
        return softmax_average(mean, var).dm
    _, step, x = _place_outer(mean, var)
    _, F, B = _sum_narrow(mean, var.sqrt(), x)
    return (B * _combine(F)[1]).sum(2) * step


def sigmoid_average(mean: Tensor, var: Tensor) -> Average:
    """Return E log σ(f) for f ~ N(m, v), any shape."""
    nodes, log_p = _sigmoid_grid(mean, var)
    p = log_p.exp()
    s = nodes.sigmoid()
    return Average(
        *(
            x.sum(-1)
            for x in (p * logsigmoid(nodes), p * (1 - s), -0.5 * (p * s * (1 - s)))
        )
    )


def log_sigmoid_probability(mean: Array, var: Array) -> tuple[Array, Array]:
    """Return log E σ(−f) and log E σ(f) for f ~ N(m, v), each [n]."""
    xp = namespace(mean)
    (nodes, log_p) = _sigmoid_grid(mean, var)
    return xp.logsumexp(log_p + xp.log_sigmoid(-nodes), 1), xp.logsumexp(
        log_p + xp.log_sigmoid(nodes), 1
    )


def _sigmoid_grid(mean: Array, var: Array) -> tuple[Array, Array]:
    """Return nodes where N(m, v) or the logistic curve bends, and the normal's log-mass
    at each.
    """
    xp = namespace(mean)
    sd = namespace(mean).sqrt(var)
    edges = bumps(xp.stack([mean, 0 * mean]), xp.stack([sd, 0 * sd + 1]))
    nodes, log_weights = piecewise_legendre(edges)
    z = (nodes - mean[..., None]) / sd[..., None]
    return nodes, log_weights - 0.5 * z * z - (xp.log(sd) + LOG_SQRT_2PI)[..., None]
