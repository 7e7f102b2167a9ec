"""The Gaussian likelihood of regression: everything in closed form, and sites that do not depend on q. [METHOD 4]"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from cavity.factors.base import Latents, Likelihood, Moments


class Gaussian(Likelihood):
    r"""y = f + N(0, σ²), one latent function, one site a row; log σ² may be learnt.

    `moments` gives FITC's sites, τ = 1/(σ² + r), and exact regression where Z = X; `average` those of the variational bound,
    τ = 1/σ². `projected` leaves the residual r out of the moments: τ = 1/σ² (projected process, subset of regressors).
    """

    linear = True

    def __init__(self, noise: float, learn: bool = False, projected: bool = False) -> None:
        self.projected = projected
        self.log_noise = nn.Parameter(torch.tensor([noise], dtype=torch.float64).log(), requires_grad=learn)
        self.parameters = (self.log_noise,) if learn else ()

    @property
    def logs(self) -> tuple[nn.Parameter, ...]:
        """Learnt logarithms, which have the same weak prior as those of a kernel."""
        return self.parameters

    @property
    def noise(self) -> Tensor:
        """σ², []."""
        return self.log_noise.detach().double().exp()[0]

    def sites(self, y: Tensor) -> Tensor:
        return torch.zeros(len(y), 1, dtype=torch.long, device=y.device)

    def moments(self, f: Latents, y: Tensor, exponent: Tensor | None) -> Moments:
        r"""φ(t) = N(y; t, S), S = σ² + r:  φ^e = c N(y; t, S/e),  log Z = log c + log N(y; m, v + S/e)."""
        noise = self.noise.to(f.var.device)
        e = torch.ones_like(f.mean) if exponent is None else exponent[:, None]
        S = noise.expand_as(f.residual) if self.projected else noise + f.residual
        total, off = f.var - f.residual + S / e, y[:, None] - f.mean
        log_c = 0.5 * ((1 - e) * (2 * math.pi * S).log() - e.log())
        value = log_c - 0.5 * (off.square() / total + (2 * math.pi * total).log())
        dv = 0.5 * (off.square() / total - 1) / total
        in_S = dv / e + 0.5 * (1 - e) / S
        own = in_S * noise if self.parameters else None
        return Moments(value[:, 0], off / total, dv, torch.zeros_like(dv) if self.projected else in_S, own)

    def average(self, f: Latents, y: Tensor) -> Moments:
        r"""E log N(y; f, σ²) = −½ log 2πσ² − ½ ((y − m)² + v)/σ²."""
        noise, off = self.noise.to(f.var.device), y[:, None] - f.mean
        misfit = (off.square() + f.var) / noise
        dv = torch.full_like(f.var, -0.5) / noise
        value = -0.5 * ((2 * math.pi * noise).log() + misfit)
        return Moments(value[:, 0], off / noise, dv, dv, 0.5 * (misfit - 1) if self.parameters else None)


class Committee(Gaussian):
    """The same for rows that belong to members of a committee, each with a latent function: y is [B 2], member and target."""

    def sites(self, y: Tensor) -> Tensor:
        return y.reshape(len(y), -1)[:, :1].long()

    def moments(self, f: Latents, y: Tensor, exponent: Tensor | None) -> Moments:
        return super().moments(f, y[:, 1], exponent)
