"""Where sites sit: on t = a·w, or on f itself with the residual eliminated (GFITC). [METHOD 4]

A placement wraps the projection: it says which marginals the sites see, what they feed into the sums, what they add to the
evidence, and the cotangents of a and r.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cavity.posterior import Normal


class SiteTotals(NamedTuple):
    """Sums of a row's sites on each class."""

    tau: Tensor  # [C B]
    nu: Tensor  # [C B]


class Seat(NamedTuple):
    """What the sites of a batch see."""

    t: Normal  # [C B], marginals under q
    residual: Tensor  # [C B], variance of f that the marginals lack


class Cotangents(NamedTuple):
    """∂/∂a = (coefficient of μ) μ + (coefficient of Σa) Σa, and ∂/∂r."""

    along_mean: Tensor  # [C B]
    along_cov: Tensor  # [C B]
    residual: Tensor  # [C B]


class OnT:
    """Sites on t; the factor integrates the residual."""

    eliminates = False

    def seat(self, t: Normal, r: Tensor, held: SiteTotals | None) -> Seat:
        return Seat(t, r)

    def feed(self, sites: SiteTotals, r: Tensor) -> SiteTotals:
        return sites

    def evidence(self, held: SiteTotals | None, r: Tensor) -> Tensor:
        return torch.zeros((), dtype=torch.float64, device=r.device)

    def cotangents(self, moved: Cotangents, t: Normal, r: Tensor, held: SiteTotals | None) -> Cotangents:
        return moved


class OnF:
    r"""Sites on f = t + N(0, r), the residual eliminated exactly:

        τ' = τ/(1+rτ),  ν' = ν/(1+rτ) feed the sums        f: mean (m + rν)/(1+rτ),  variance r/(1+rτ) + v/(1+rτ)²
        evidence:  Σ −½ log(1+rτ) + ½ ν² r/(1+rτ)

    At the fixed point only this evidence moves with (a, r), at fixed sites:

        ∂/∂a = (ν' − τ'm) μ − τ' Σa        ∂/∂r = ½(ν' − τ'm)² − ½τ' + ½τ'² v
    """

    eliminates = True

    def seat(self, t: Normal, r: Tensor, held: SiteTotals | None) -> Seat:
        assert held is not None
        grown = 1 + r * held.tau
        f = Normal((t.mean + r * held.nu) / grown, r / grown + t.var / grown.square())
        return Seat(f, torch.zeros_like(r))

    def feed(self, sites: SiteTotals, r: Tensor) -> SiteTotals:
        grown = 1 + r * sites.tau
        return SiteTotals(sites.tau / grown, sites.nu / grown)

    def evidence(self, held: SiteTotals | None, r: Tensor) -> Tensor:
        assert held is not None
        grown = 1 + r * held.tau
        return 0.5 * (held.nu.square() * r / grown - grown.log()).sum()

    def cotangents(self, moved: Cotangents, t: Normal, r: Tensor, held: SiteTotals | None) -> Cotangents:
        assert held is not None
        tau, nu = self.feed(held, r)
        pull = nu - tau * t.mean
        return Cotangents(pull, -tau, 0.5 * (pull.square() - tau + tau.square() * t.var))
