"""Averages of fractional powers and of the logarithm of the probit. [METHOD 4, power EP]"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cavity.numerics import hazard, hazard_slope, log_ndtr, log_normal_pdf
from cavity.quadrature.grid import bumps, piecewise_legendre


class ProbitMoments(NamedTuple):
    """log ∫ Φ(d/√R)^e N(d; μ, V) dd, or E log Φ(d/√R), with its derivatives in μ, V and R."""

    value: Tensor
    dm: Tensor
    dv: Tensor
    dr: Tensor


def probit_power(mean: Tensor, var: Tensor, residual: Tensor, exponent: Tensor) -> ProbitMoments:
    r"""Return the tilted normaliser of a fractional probit, g(d) = e log Φ(d/√R).        [METHOD 4, power EP]

    ∂/∂μ = ⟨g'⟩      ∂/∂V = ½⟨g'' + g'²⟩      ∂/∂R = ⟨∂g/∂R⟩        (⟨·⟩: under Φ^e N, normalised)
    """
    # a zero width would have no grid; 1e-16 of the other is a point mass in float64
    var = torch.maximum(var, 1e-16 * residual)
    residual = torch.maximum(residual, 1e-16 * var)
    sd, width = var.sqrt(), residual.sqrt()
    # left of 0 the integrand is a normal of precision 1/V + e/R around `shifted`; right of 0 it is a tail of
    # N(μ, V), which falls by e in V/|μ|
    slope = exponent / residual
    shifted = mean.clamp(max=0) / (1 + var * slope)
    narrow = (1 / (1 / var + slope)).sqrt()
    tail = var / (mean * mean + var).sqrt()
    zero = torch.zeros_like(mean)
    edges = bumps(torch.stack([mean, zero, shifted, zero], -1), torch.stack([sd, width, narrow, tail], -1))
    grid = piecewise_legendre(edges.detach())  # the nodes have no derivative; edges may coincide
    alpha = grid.nodes / width[..., None]
    beta = hazard(alpha)
    e = exponent[..., None]
    log_g = (
        e * log_ndtr(alpha)
        + log_normal_pdf((grid.nodes - mean[..., None]) / sd[..., None])
        + grid.log_weights
    )
    value = log_g.logsumexp(-1)
    p = (log_g - value[..., None]).exp()
    g1 = e * beta / width[..., None]
    g2 = -e * hazard_slope(alpha, beta) / residual[..., None]
    gr = -0.5 * e * beta * alpha / residual[..., None]
    return ProbitMoments(
        value - sd.log(), (p * g1).sum(-1), 0.5 * (p * (g2 + g1 * g1)).sum(-1), (p * gr).sum(-1)
    )


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
