"""Averages of the softmax over independent normals, by one integral a row. [docs/decisions/0007]"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from cavity.numerics import log_normal_pdf
from cavity.quadrature.grid import Grid, bumps, piecewise_legendre

INNER = 48  # trapezoidal nodes over a normal
OUTER = 128  # and over the largest of f_c + Gumbel
REACH = 8.5
BYTES = 8 << 20  # of one array over a piece's nodes
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

    Both integrands are analytic and fall fast on both sides: the trapezoidal rule converges exponentially.
    """
    size = max(1, BYTES // (8 * mean.shape[1] * INNER * OUTER))
    parts = [_average(m, v) for m, v in zip(torch.split(mean, size), torch.split(var, size), strict=True)]
    return SoftmaxAverage(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _average(mean: Tensor, var: Tensor) -> SoftmaxAverage:
    sd = var.sqrt()
    level = (mean + 0.5 * var).logsumexp(-1)  # [B]
    low = torch.minimum(level, (mean - REACH * sd).amax(-1)) - 4
    high = torch.maximum(level, (mean + REACH * sd).amax(-1)) + 20
    step = (high - low) / (OUTER - 1)
    x = low[:, None] + step[:, None] * torch.arange(OUTER, dtype=mean.dtype, device=mean.device)  # [B J]
    z = torch.linspace(-REACH, REACH, INNER, dtype=mean.dtype, device=mean.device)
    weight = torch.softmax(-0.5 * z * z, 0)
    f = mean[..., None] + sd[..., None] * z  # [B C I]
    log_w = (f[:, :, None] - x[:, None, :, None]).clamp(max=_LARGEST)  # [B C J I]
    w = log_w.exp()
    e = (-w).exp()
    we = w * e
    F, B = (e @ weight).clamp(1e-300, 1.0), we @ weight  # [B C J]
    D = (w * we) @ weight - B
    log_F = F.log()
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
