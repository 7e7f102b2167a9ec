"""Averages of the softmax over independent normals, by one integral a row. [docs/decisions/0007]"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from cavity.numerics import log_normal_pdf
from cavity.quadrature.grid import Grid, bumps, natural_length, piecewise_legendre, shortest

INNER = 48  # trapezoidal nodes over a normal, or over a Gumbel variable
OUTER = 128  # and over the largest of f_c + Gumbel
REACH = 8.5
BYTES = 8 << 20  # of one array over a piece's nodes
WIDE = 3.0  # a standard deviation beyond which these nodes are too few
GUMBEL = (-4.0, 21.0)  # outside of it a standard Gumbel variable is with probability 1e-9
_EULER = 0.5772156649015329
_LARGEST = 6.5  # exp(−exp(6.5)) is 0 for all that follows


class SoftmaxAverage(NamedTuple):
    """E log Σ_c exp f_c, and its derivatives."""

    value: Tensor  # [B]
    dm: Tensor  # [B C], E softmax_c
    dv: Tensor  # [B C]


def softmax_average(mean: Tensor, var: Tensor) -> SoftmaxAverage:
    r"""E log Σ exp f_c for f_c ~ N(m_c, v_c), [B C].

    log Σ exp f_c + γ is the mean of max_c (f_c + G_c), G_c standard Gumbel, whose distribution function is a product:

        F_c(x) = P(f_c + G_c ≤ x) = E exp(−exp(f_c − x))
        E log Σ exp f_c = ℓ + ∫ [exp(−exp(ℓ − x)) − Π_c F_c(x)] dx        any ℓ; ℓ = log Σ exp(m_c + v_c/2) cancels the tails
        ∂/∂m_c = ∫ −∂F_c/∂m_c Π_{k≠c} F_k dx        ∂/∂v_c: with ½ ∂²F_c/∂m_c²

    Both integrands are analytic and fall fast on both sides: the trapezoidal rule converges exponentially, until an f_c is so wide
    that its nodes are farther apart than a Gumbel variable is wide. Such rows have a grid of their own.
    """
    if mean.is_cuda and torch.cuda.is_current_stream_capturing():
        return _pieces(_average, OUTER, mean, var)  # a recorded step cannot ask what its rows are like
    wide = (var > WIDE**2).any(-1)
    if not bool(wide.any()):
        return _pieces(_average, OUTER, mean, var)
    found = SoftmaxAverage(torch.empty_like(mean[:, 0]), torch.empty_like(mean), torch.empty_like(mean))
    place = (~wide).nonzero()[:, 0]
    parts = [(place, _pieces(_average, OUTER, mean[place], var[place]))] if len(place) else []
    for chosen, part in parts + _wide(mean, var, wide.nonzero()[:, 0]):
        for whole, piece in zip(found, part, strict=True):
            whole[chosen] = piece
    return found


def _pieces(average: Callable[..., SoftmaxAverage], nodes: int, *rows: Tensor) -> SoftmaxAverage:
    """A few rows at a time, so that arrays over their nodes stay small."""
    size = max(1, BYTES // (8 * rows[0].shape[1] * INNER * nodes))
    parts = [average(*piece) for piece in zip(*(torch.split(r, size) for r in rows), strict=True)]
    return SoftmaxAverage(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _wide(mean: Tensor, var: Tensor, place: Tensor) -> list[tuple[Tensor, SoftmaxAverage]]:
    """The averages of the rows at `place`, by rows with grids of one length."""
    m, v = mean[place], var[place]
    sd = (v + math.pi**2 / 6).sqrt()  # of f_c + G_c
    low = (m - REACH * v.sqrt()).amax(-1, keepdim=True) - 4
    high = (m + REACH * v.sqrt()).amax(-1, keepdim=True) + 20
    edges = bumps(m + _EULER, sd).clamp(low, high)
    edges[:, 0], edges[:, -1] = low[:, 0], high[:, 0]
    found = []
    for some, kept in shortest(edges, natural_length(edges, m + _EULER, sd)):
        grid = piecewise_legendre(kept)
        part = _pieces(_wide_average, grid.nodes.shape[-1], m[some], v[some], high[some, 0], *grid)
        found.append((place[some], part))
    return found


def _wide_average(mean: Tensor, var: Tensor, high: Tensor, x: Tensor, log_weights: Tensor) -> SoftmaxAverage:
    """`high` is where the largest is sure to be below: E max = high − ∫ Π_c F_c up to it.

    F_c by a sum over f_c where that is narrow, else over its Gumbel variable: F_c(x) = E Φ((x − G − m_c)/σ_c).
    """
    sd = var.sqrt()
    g, weight = gumbel_nodes(mean)
    u = (x[:, None, :, None] - g - mean[..., None, None]) / sd[..., None, None]  # [B C J I]
    bell = log_normal_pdf(u).exp()
    wide = (
        torch.special.ndtr(u) @ weight,
        (bell @ weight) / sd[..., None],
        -((u * bell) @ weight) / var[..., None],
    )
    pick = (sd > WIDE)[..., None]
    F, B, D = (torch.where(pick, a, b) for a, b in zip(wide, _narrow(mean, sd, x), strict=True))
    log_F = F.clamp(1e-300, 1.0).log()
    total = log_F.sum(1, keepdim=True)
    others = (total - log_F).exp() * log_weights.exp()[:, None]
    value = high - _EULER - (total[:, 0].exp() * log_weights.exp()).sum(-1)
    return SoftmaxAverage(value, (B * others).sum(-1), -0.5 * (D * others).sum(-1))


def gumbel_nodes(like: Tensor) -> tuple[Tensor, Tensor]:
    """Trapezoids over a standard Gumbel variable: nodes and weights."""
    g = torch.linspace(*GUMBEL, INNER, dtype=like.dtype, device=like.device)
    return g, torch.softmax(-g - (-g).exp(), 0)


def _narrow(mean: Tensor, sd: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """F_c at x, −∂F_c/∂m_c and ∂²F_c/∂m_c², by trapezoids over f_c; each [B C J]."""
    z = torch.linspace(-REACH, REACH, INNER, dtype=mean.dtype, device=mean.device)
    weight = torch.softmax(-0.5 * z * z, 0)
    f = mean[..., None] + sd[..., None] * z  # [B C I]
    w = (f[:, :, None] - x[:, None, :, None]).clamp(max=_LARGEST).exp()  # [B C J I]
    e = (-w).exp()
    we = w * e
    B = we @ weight
    return e @ weight, B, (w * we) @ weight - B


def _average(mean: Tensor, var: Tensor) -> SoftmaxAverage:
    sd = var.sqrt()
    level = (mean + 0.5 * var).logsumexp(-1)  # [B]
    low = torch.minimum(level, (mean - REACH * sd).amax(-1)) - 4
    high = torch.maximum(level, (mean + REACH * sd).amax(-1)) + 20
    step = (high - low) / (OUTER - 1)
    x = low[:, None] + step[:, None] * torch.arange(OUTER, dtype=mean.dtype, device=mean.device)  # [B J]
    F, B, D = _narrow(mean, sd, x)
    log_F = F.clamp(1e-300, 1.0).log()
    total = log_F.sum(1, keepdim=True)
    others = (total - log_F).exp()
    outer = step[:, None]
    value = (
        level + ((-(level[:, None] - x).clamp(max=_LARGEST).exp()).exp() - total[:, 0].exp()).sum(-1) * step
    )
    return SoftmaxAverage(value, (B * others).sum(-1) * outer, -0.5 * (D * others).sum(-1) * outer)


class SigmoidAverage(NamedTuple):
    """E log σ(f), and its derivatives."""

    value: Tensor
    dm: Tensor  # E σ(−f)
    dv: Tensor  # −½ E σ(f) σ(−f)


def sigmoid_average(mean: Tensor, var: Tensor) -> SigmoidAverage:
    """E log σ(f) for f ~ N(m, v), any shape."""
    grid, log_p = _sigmoid_grid(mean, var)
    p, s = log_p.exp(), grid.nodes.sigmoid()
    average = (p * logsigmoid(grid.nodes)).sum(-1), (p * (1 - s)).sum(-1), -0.5 * (p * s * (1 - s)).sum(-1)
    return SigmoidAverage(*average)


def log_sigmoid_probability(mean: Tensor, var: Tensor) -> Tensor:
    """log E σ(f) for f ~ N(m, v), any shape."""
    grid, log_p = _sigmoid_grid(mean, var)
    return (log_p + logsigmoid(grid.nodes)).logsumexp(-1)


def _sigmoid_grid(mean: Tensor, var: Tensor) -> tuple[Grid, Tensor]:
    """Nodes where N(m, v) or the logistic curve bends, with the normal's log-mass at each."""
    sd = var.sqrt()
    grid = piecewise_legendre(bumps(torch.stack([mean, 0 * mean], -1), torch.stack([sd, 0 * sd + 1], -1)))
    return grid, log_normal_pdf((grid.nodes - mean[..., None]) / sd[..., None]) - sd.log()[
        ..., None
    ] + grid.log_weights
