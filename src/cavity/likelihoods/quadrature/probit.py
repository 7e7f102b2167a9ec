"""Averages of the logarithm of the probit. [METHOD 4, power EP]"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cavity.likelihoods.normal_tails import hazard, hazard_slope, log_ndtr, log_normal_pdf
from cavity.likelihoods.quadrature.grid import bumps, piecewise_legendre


class ProbitMoments(NamedTuple):
    """log ∫ Φ(d/√R)^e N(d; μ, V) dd, or E log Φ(d/√R), with its derivatives in μ, V and R."""

    value: Tensor
    dm: Tensor
    dv: Tensor
    dr: Tensor


def probit_average(mean: Tensor, var: Tensor, residual: Tensor) -> ProbitMoments:
    r"""Return E g(d), g(d) = log Φ(d/√R), d ~ N(μ, V): the limit e → 0 of power EP's (1/e) log Z.        [METHOD 4, power EP]

    ∂/∂μ = E g'      ∂/∂V = ½ E g''      ∂/∂R = E ∂g/∂R
    """
    var = torch.maximum(var, 1e-16 * residual)
    residual = torch.maximum(residual, 1e-16 * var)
    sd, width = var.sqrt(), residual.sqrt()
    zero = torch.zeros_like(mean)
    # left of 0 log Φ approaches its parabola only as 1/d²: add breakpoints between the two widths
    edges = bumps(torch.stack([mean, zero, zero], -1), torch.stack([sd, width, (sd * width).sqrt()], -1))
    grid = piecewise_legendre(edges.detach())
    alpha = grid.nodes / width[..., None]
    beta = hazard(alpha)
    p = (log_normal_pdf((grid.nodes - mean[..., None]) / sd[..., None]) + grid.log_weights).exp()
    p = p / sd[..., None]
    dm = (p * beta).sum(-1) / width
    dv = -0.5 * (p * hazard_slope(alpha, beta)).sum(-1) / residual
    dr = -0.5 * (p * beta * alpha).sum(-1) / residual
    return ProbitMoments((p * log_ndtr(alpha)).sum(-1), dm, dv, dr)
