"""Probit likelihoods in closed form. [METHOD 4]

The own class beats each rival, or one signed latent value decides between two classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cavity.engine.likelihoods.base import LIKELIHOODS, Latents, Likelihood, Moments
from cavity.engine.likelihoods.normal_tails import hazard, hazard_slope, log_ndtr
from cavity.engine.likelihoods.outcomes import LargestWins, WithOutcome
from cavity.engine.likelihoods.quadrature.power import (
    RULES,
    ProbitMoments,
    probit_average,
    probit_power,
)


def match_probit(mean: Tensor, var: Tensor) -> ProbitMoments:
    r"""Return log Z = log Φ(α), d₁ = β/√b and ∂/∂v, where `var` is b.

    α = μ/√b        β = φ(α)/Φ(α)        d₂ = 2 ∂/∂v − d₁² = −β(β+α)/b
    """
    scale = var.rsqrt()
    alpha = mean * scale
    beta = hazard(alpha)
    dm = beta * scale
    dv = 0.5 * (dm * dm - hazard_slope(alpha, beta) * scale * scale)
    return ProbitMoments(log_ndtr(alpha), dm, dv, dv)


def _probit(
    mean: Tensor, var: Tensor, residual: Tensor, e: Tensor | None, least: float
) -> ProbitMoments:
    """Return the moments of Φ^e, where `var` is b = V + R.

    Exponents below one need quadrature. Its panels, for `least` near 0, do not have the
    closed form at e = 1.
    """
    if e is None:
        return match_probit(mean, var)

    power = probit_power(mean, var - residual, residual, e.clamp(max=1.0), least)
    if least >= RULES[-1].least:
        return power

    both = zip(match_probit(mean, var), power, strict=True)
    return ProbitMoments(*(torch.where(e == 1, c, p) for c, p in both))


def rivals(y: Tensor, n_classes: int) -> Tensor:
    """Return the other classes per row, ascending, [B C−1]."""
    k = torch.arange(n_classes - 1, device=y.device)
    return k + (k >= y[:, None])


class _Probit(WithOutcome, Likelihood):
    """The largest f wins: Φ of gaps between latent values."""

    _least = 0.0  # quadrature needs fewer nodes if all exponents are near 1

    def expect_exponents(self, least: float) -> None:
        self._least = least

    def _gaps(self, f: Latents, y: Tensor) -> Latents:
        """Return mean, variance and residual variance of the gaps, each [B pairs]."""
        raise NotImplementedError

    def _spread(self, step: ProbitMoments, y: Tensor) -> Moments:
        """Return the derivatives at the sites, given derivatives in the gaps."""
        raise NotImplementedError

    def moments(self, f: Latents, y: Tensor, exponent: Tensor | None) -> Moments:
        gap = self._gaps(f, y)
        power = None
        if exponent is not None:
            power = exponent[:, None].expand_as(gap.mean)
        return self._spread(_probit(*gap, power, self._least), y)

    def average(self, f: Latents, y: Tensor) -> Moments:
        mean, var, residual = self._gaps(f, y)
        return self._spread(probit_average(mean, var - residual, residual), y)

    @property
    def outcome(self) -> LargestWins:
        return LargestWins(self._classes())


@LIKELIHOODS.register
class ProbitPairs(_Probit):
    """The own class beats each rival: Π_k Φ((t_y − t_k)/√(r_y + r_k)), in closed form.

    The default of EP.

    Each rival has two sites: C − 1 sites on the own class come first, then one on each
    rival. Two classes have `BinaryProbit`.

    Parameters
    ----------
    n_classes : int or None
        Number of classes; None until `bind`.
    """

    name = "probit"
    sums_to_one = False  # the residual of the own class is drawn anew for each rival

    def __init__(self, n_classes: int | None = None) -> None:
        self.n_classes = n_classes

    def _for_two_classes(self) -> Likelihood:
        return BinaryProbit()

    def sites(self, y: Tensor) -> Tensor:
        own = y[:, None].expand(-1, self._classes() - 1)
        return torch.cat([own, rivals(y, self._classes())], 1)

    def _gaps(self, f: Latents, y: Tensor) -> Latents:
        (m, m_rival), (v, v_rival), (r, r_rival) = (x.chunk(2, 1) for x in f)
        return Latents(m - m_rival, v + v_rival, r + r_rival)

    def _spread(self, step: ProbitMoments, y: Tensor) -> Moments:
        dm = torch.cat([step.dm, -step.dm], 1)
        dv = torch.cat([step.dv, step.dv], 1)
        dr = dv
        if step.dr is not step.dv:
            dr = torch.cat([step.dr, step.dr], 1)
        return Moments(step.value.sum(1), dm, dv, dr)


@LIKELIHOODS.register
class BinaryProbit(_Probit):
    """Probit of one latent function for two classes, y ∈ {0, 1}: Φ(±t/√r).

    One site per row.
    """

    two_classes = True
    n_classes = 2

    def _gaps(self, f: Latents, y: Tensor) -> Latents:
        return f._replace(mean=signs(y, f.mean) * f.mean)

    def _spread(self, step: ProbitMoments, y: Tensor) -> Moments:
        return Moments(step.value[:, 0], signs(y, step.dm) * step.dm, step.dv, step.dr)


def signs(y: Tensor, like: Tensor) -> Tensor:
    """Return −1 or +1 for the labels 0 and 1, [B 1]."""
    return (2 * y - 1)[:, None].to(like.dtype)
