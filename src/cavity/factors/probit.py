"""The closed-form factors: own class beats each rival (C classes), or one signed latent (two classes). [METHOD 4]"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cavity.factors.base import Latents, Moments
from cavity.numerics import hazard, hazard_slope, log_ndtr
from cavity.quadrature import probit_power


class _Step(NamedTuple):
    """log ∫ Φ(d/√R)^e N(d; μ, V) dd and its derivatives."""

    value: Tensor
    dm: Tensor
    dv: Tensor
    dr: Tensor


def _probit(mean: Tensor, var: Tensor, residual: Tensor, exponent: Tensor | None) -> _Step:
    r"""b = V + R,  α = μ/√b,  β = φ(α)/Φ(α):   log Z = log Φ(α),  d₁ = β/√b,  d₂ = −β(β+α)/b.

    `var` includes `residual`. Exponents below one go by quadrature.
    """
    scale = var.rsqrt()
    alpha = mean * scale
    beta = hazard(alpha)
    dm = beta * scale
    dv = 0.5 * (dm * dm - hazard_slope(alpha, beta) * scale * scale)  # d₂ = 2 ∂/∂v − d₁²
    closed = _Step(log_ndtr(alpha), dm, dv, dv)
    if exponent is None:
        return closed
    power = probit_power(mean, var - residual, residual, exponent.clamp(max=1.0))
    whole = exponent == 1
    return _Step(*(torch.where(whole, c, p) for c, p in zip(closed, power, strict=True)))


class ProbitPairs:
    """y beats each rival: Π_k Φ((t_y − t_k)/√(r_y + r_k)). Two sites a rival: C−1 on the own class, then the rivals'."""

    def __init__(self, n_classes: int) -> None:
        self.n_classes = n_classes
        self._rivals = torch.tensor([[k for k in range(n_classes) if k != c] for c in range(n_classes)])

    def sites(self, y: Tensor) -> Tensor:
        own = y[:, None].expand(-1, self.n_classes - 1)
        return torch.cat([own, self._rivals.to(y.device)[y]], 1)

    def moments(self, f: Latents, y: Tensor, exponent: Tensor | None) -> Moments:
        pairs = self.n_classes - 1
        mean = f.mean[:, :pairs] - f.mean[:, pairs:]
        var = f.var[:, :pairs] + f.var[:, pairs:]
        residual = f.residual[:, :pairs] + f.residual[:, pairs:]
        step = _probit(mean, var, residual, None if exponent is None else exponent[:, None].expand_as(mean))
        both = (torch.cat([d, d], 1) for d in (step.dv, step.dr))
        return Moments(step.value.sum(1), torch.cat([step.dm, -step.dm], 1), *both)


class BinaryProbit:
    """One latent function, y ∈ {0, 1}: Φ(±t/√r). One site a row."""

    def sites(self, y: Tensor) -> Tensor:
        return torch.zeros(len(y), 1, dtype=torch.long, device=y.device)

    def moments(self, f: Latents, y: Tensor, exponent: Tensor | None) -> Moments:
        sign = (2 * y - 1)[:, None].to(f.mean.dtype)
        step = _probit(sign * f.mean, f.var, f.residual, None if exponent is None else exponent[:, None])
        return Moments(step.value[:, 0], sign * step.dm, step.dv, step.dr)
