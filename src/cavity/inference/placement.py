"""Where sites sit: on t = a·w, on f itself with the residual eliminated (GFITC), or at the mode of f (Laplace). [METHOD 4]

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
    copies: Tensor | float = 1.0  # [B], the rows that these are the sites of: each has a residual of its own


class SiteMarginals(NamedTuple):
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

    def site_marginals(self, t: Normal, r: Tensor, stored: SiteTotals | None) -> SiteMarginals:
        return SiteMarginals(t, r)

    def feed(self, sites: SiteTotals, r: Tensor) -> SiteTotals:
        return sites

    def evidence(self, stored: SiteTotals | None, r: Tensor) -> Tensor:
        return torch.zeros((), dtype=torch.float64, device=r.device)

    def cotangents(self, moved: Cotangents, t: Normal, r: Tensor, stored: SiteTotals | None) -> Cotangents:
        return moved


class OnF:
    r"""Sites on f = t + N(0, r), the residual eliminated exactly:

        τ' = τ/(1+rτ),  ν' = ν/(1+rτ) feed the sums        f: mean (m + rν)/(1+rτ),  variance r/(1+rτ) + v/(1+rτ)²
        evidence:  Σ −½ log(1+rτ) + ½ ν² r/(1+rτ)

    At the fixed point only this evidence moves with (a, r), at fixed sites:

        ∂/∂a = (ν' − τ'm) μ − τ' Σa        ∂/∂r = ½(ν' − τ'm)² − ½τ' + ½τ'² v

    A row of weight ω is ω rows, each with a value f of its own: all this holds for one of them, whose τ is the total's ω-th part.
    A row of ω < 1 sits where a whole one would, q completed by what it lacks of it: a step Θ(f) has no powers to be matched.
    """

    eliminates = True

    def site_marginals(self, t: Normal, r: Tensor, stored: SiteTotals | None) -> SiteMarginals:
        assert stored is not None
        grown = self._grown(stored, r)
        mean, var = self._completed(t, self.feed(stored, r))
        f = Normal((mean + r * stored.nu / stored.copies) / grown, r / grown + var / grown.square())
        return SiteMarginals(f, torch.zeros_like(r))

    def _grown(self, sites: SiteTotals, r: Tensor) -> Tensor:
        return 1 + r * sites.tau / sites.copies

    def _completed(self, t: Normal, fed: SiteTotals) -> Normal:
        """q times the 1 − ω that it lacks of a light row."""
        if isinstance(fed.copies, float):
            return t
        lacks = (1 / fed.copies - 1).clamp_min(0)
        grown = 1 + lacks * fed.tau * t.var
        return Normal((t.mean + lacks * fed.nu * t.var) / grown, t.var / grown)

    def feed(self, sites: SiteTotals, r: Tensor) -> SiteTotals:
        grown = self._grown(sites, r)
        return SiteTotals(sites.tau / grown, sites.nu / grown, sites.copies)

    def evidence(self, stored: SiteTotals | None, r: Tensor) -> Tensor:
        assert stored is not None
        grown = self._grown(stored, r)
        return 0.5 * (stored.nu.square() * r / (stored.copies * grown) - stored.copies * grown.log()).sum()

    def cotangents(self, moved: Cotangents, t: Normal, r: Tensor, stored: SiteTotals | None) -> Cotangents:
        assert stored is not None
        tau, nu, copies = self.feed(stored, r)
        pull = nu - tau * t.mean
        return Cotangents(pull, -tau, 0.5 * ((pull.square() + tau.square() * t.var) / copies - tau))


class AtMode(OnF):
    r"""Laplace: sites on f, and a cavity that is a point, the mode f̂ = E f.        [METHOD 4, docs/decisions/0016]

    A Gaussian without width has log Z = log p(y | f̂), so that the update of EP becomes Newton's, τ = −d₂, ν = d₁ + τ f̂, and its
    log s̃ becomes log p(y | f̂) + ½ τ f̂² − ν f̂. A row of weight ω ≥ 1 is ω rows with a value f each; below 1 it is p(y | f)^ω.
    """

    def site_marginals(self, t: Normal, r: Tensor, stored: SiteTotals | None) -> SiteMarginals:
        mode = self._f(t, r, stored).mean
        return SiteMarginals(Normal(mode, torch.zeros_like(mode)), torch.zeros_like(r))

    def width(self, t: Normal, r: Tensor, stored: SiteTotals | None) -> Tensor:
        """Variance of f, [C B]."""
        return self._f(t, r, stored).var

    def feed(self, sites: SiteTotals, r: Tensor) -> SiteTotals:
        return super().feed(_rows_of(sites), r)

    def evidence(self, stored: SiteTotals | None, r: Tensor) -> Tensor:
        return super().evidence(None if stored is None else _rows_of(stored), r)

    def _f(self, t: Normal, r: Tensor, stored: SiteTotals | None) -> Normal:
        return super().site_marginals(t, r, None if stored is None else _rows_of(stored)).t


def _rows_of(sites: SiteTotals) -> SiteTotals:
    """The values f that belong to these totals: no fewer than one."""
    copies = sites.copies
    return sites if isinstance(copies, float) else sites._replace(copies=copies.clamp_min(1.0))
