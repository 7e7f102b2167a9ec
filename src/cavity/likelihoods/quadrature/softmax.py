"""Averages of the softmax over independent normals, by one integral per row. [docs/decisions/0007]"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from cavity.likelihoods.normal_tails import log_normal_pdf
from cavity.likelihoods.quadrature.grid import Grid, bumps, natural_length, piecewise_legendre, shortest_grids

INNER = 48  # trapezoidal nodes over a normal, or over a Gumbel variable
OUTER = 128  # trapezoidal nodes over the largest of f_c + Gumbel
REACH = 8.5
BYTES = 8 << 20  # of one array over a piece's nodes
WIDE = 3.0  # standard deviation above which these nodes are too few
GUMBEL = (-4.0, 21.0)  # a standard Gumbel variable lies outside with probability 1e-9
_EULER = 0.5772156649015329
_LARGEST = 6.5  # exp(−exp(6.5)) is negligible


class SoftmaxAverage(NamedTuple):
    """E log Σ_c exp f_c, and its derivatives."""

    value: Tensor  # [B]
    dm: Tensor  # [B C], E softmax_c
    dv: Tensor  # [B C]


def softmax_average(mean: Tensor, var: Tensor) -> SoftmaxAverage:
    r"""Return E log Σ exp f_c for f_c ~ N(m_c, v_c), [B C].

    log Σ exp f_c + γ is the mean of max_c (f_c + G_c), G_c standard Gumbel, whose distribution function is a product:

        F_c(x) = P(f_c + G_c ≤ x) = E exp(−exp(f_c − x))
        E log Σ exp f_c = ℓ + ∫ [exp(−exp(ℓ − x)) − Π_c F_c(x)] dx        any ℓ; ℓ = log Σ exp(m_c + v_c/2) cancels the tails
        ∂/∂m_c = ∫ −∂F_c/∂m_c Π_{k≠c} F_k dx        ∂/∂v_c: with ½ ∂²F_c/∂m_c²

    Both integrands are analytic and decay fast on both sides, so the trapezoidal rule converges exponentially. It fails if an f_c
    is so wide that its nodes are farther apart than the width of a Gumbel variable. Such rows use another grid.
    """
    if mean.is_cuda and torch.cuda.is_current_stream_capturing():
        return _average_in_pieces(_average, OUTER, mean, var)  # a recorded step cannot branch on its rows
    wide = (var > WIDE**2).any(-1)
    if not bool(wide.any()):
        return _average_in_pieces(_average, OUTER, mean, var)
    found = SoftmaxAverage(torch.empty_like(mean[:, 0]), torch.empty_like(mean), torch.empty_like(mean))
    place = (~wide).nonzero()[:, 0]
    parts = [(place, _average_in_pieces(_average, OUTER, mean[place], var[place]))] if len(place) else []
    for chosen, part in parts + _average_wide_rows(mean, var, wide.nonzero()[:, 0]):
        for whole, piece in zip(found, part, strict=True):
            whole[chosen] = piece
    return found


def _average_in_pieces(average: Callable[..., SoftmaxAverage], nodes: int, *rows: Tensor) -> SoftmaxAverage:
    """Average a few rows at a time, so that arrays over their nodes stay small."""
    size = max(1, BYTES // (8 * rows[0].shape[1] * INNER * nodes))
    parts = [average(*piece) for piece in zip(*(torch.split(r, size) for r in rows), strict=True)]
    return SoftmaxAverage(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _average_wide_rows(mean: Tensor, var: Tensor, place: Tensor) -> list[tuple[Tensor, SoftmaxAverage]]:
    """Return the averages of the rows at `place`, grouped by the length of their grids."""
    m, v = mean[place], var[place]
    sd = (v + math.pi**2 / 6).sqrt()  # of f_c + G_c
    low = (m - REACH * v.sqrt()).amax(-1, keepdim=True) - 4
    high = (m + REACH * v.sqrt()).amax(-1, keepdim=True) + 20
    edges = bumps(m + _EULER, sd).clamp(low, high)
    edges[:, 0], edges[:, -1] = low[:, 0], high[:, 0]
    found = []
    for some, kept in shortest_grids(edges, natural_length(edges, m + _EULER, sd)):
        grid = piecewise_legendre(kept)
        part = _average_in_pieces(_wide_average, grid.nodes.shape[-1], m[some], v[some], high[some, 0], *grid)
        found.append((place[some], part))
    return found


def _wide_average(mean: Tensor, var: Tensor, high: Tensor, x: Tensor, log_weights: Tensor) -> SoftmaxAverage:
    """Return averages as E max = high − ∫ Π_c F_c up to `high`, which the largest value does not exceed.

    F_c is a sum over f_c if that is narrow, else over its Gumbel variable: F_c(x) = E Φ((x − G − m_c)/σ_c).
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
    """Return trapezoidal nodes and weights of a standard Gumbel variable."""
    g = torch.linspace(*GUMBEL, INNER, dtype=like.dtype, device=like.device)
    return g, torch.softmax(-g - (-g).exp(), 0)


def _narrow(mean: Tensor, sd: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return F_c at x, −∂F_c/∂m_c and ∂²F_c/∂m_c² by the trapezoidal rule over f_c, each [B C J]."""
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
    """Return E log σ(f) for f ~ N(m, v), any shape."""
    grid, log_p = _sigmoid_grid(mean, var)
    p, s = log_p.exp(), grid.nodes.sigmoid()
    average = (p * logsigmoid(grid.nodes)).sum(-1), (p * (1 - s)).sum(-1), -0.5 * (p * s * (1 - s)).sum(-1)
    return SigmoidAverage(*average)


def log_sigmoid_probability(mean: Tensor, var: Tensor) -> Tensor:
    """Return log E σ(f) for f ~ N(m, v), any shape."""
    grid, log_p = _sigmoid_grid(mean, var)
    return (log_p + logsigmoid(grid.nodes)).logsumexp(-1)


def _sigmoid_grid(mean: Tensor, var: Tensor) -> tuple[Grid, Tensor]:
    """Return nodes where N(m, v) or the logistic curve bends, and the normal's log-mass at each."""
    sd = var.sqrt()
    grid = piecewise_legendre(bumps(torch.stack([mean, 0 * mean], -1), torch.stack([sd, 0 * sd + 1], -1)))
    return grid, log_normal_pdf((grid.nodes - mean[..., None]) / sd[..., None]) - sd.log()[
        ..., None
    ] + grid.log_weights
