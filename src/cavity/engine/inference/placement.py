"""Where sites sit: on t, on f (GFITC), or at the mode of f (Laplace). [METHOD 4]

Sites on t = a·w leave the residual to the factor; sites on f eliminate it. A placement
wraps the projection. It gives the marginals that the sites see, what the sites add to
the sums and to the evidence, and the cotangents of a and r.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cavity.engine.inference.batch_sites import BatchView, SiteTotals, gather
from cavity.engine.inference.posterior import Normal
from cavity.engine.inference.sites import times
from cavity.engine.likelihoods import Likelihood


class Cotangents(NamedTuple):
    """∂/∂a = (coefficient of μ) μ + (coefficient of Σa) Σa, and ∂/∂r."""

    along_mean: Tensor  # [C B]
    along_cov: Tensor  # [C B]
    residual: Tensor  # [C B]


class OnT:
    """Sites on t; the factor integrates the residual.

    `stored` are the totals of the stored sites, or None if the placement does not
    eliminate the residual.

    `stored` are the totals of the stored sites, None unless it is eliminated.
    """

    eliminates = False  # whether the sites absorb the residual r

    def site_marginals(
        self, t: Normal, r: Tensor, stored: SiteTotals | None
    ) -> tuple[Normal, Tensor]:
        """Return the marginals that the sites see, and the variance they lack, [C B].

        The marginals are under q; adding the variance gives f.
        """
        return t, r

    def feed(self, sites: SiteTotals, r: Tensor) -> SiteTotals:
        """Return what the sites add to the sums."""
        return sites

    def complete(
        self, evidence: Tensor, stored: SiteTotals | None, r: Tensor
    ) -> Tensor:
        """Return log Z_q with what eliminating the residual adds to it, []."""
        return evidence

    def cotangents(
        self, moved: Cotangents, t: Normal, r: Tensor, stored: SiteTotals | None
    ) -> Cotangents:
        """Return the cotangents of a and r; `moved` come from the factors' moments."""
        return moved

    def mode_correction(
        self, factor: Likelihood, y: Tensor, t: Normal, r: Tensor, view: BatchView
    ) -> Tensor:
        """Return a term for a cavity that moves with the mode, [].

        Only its gradient counts. It is zero for true cavities.
        """
        return torch.zeros((), dtype=torch.float64, device=r.device)


Placement = OnT


class OnF(OnT):
    r"""Sites on f = t + N(0, r), with the residual eliminated exactly.

        sums:      τ' = τ/(1+rτ),  ν' = ν/(1+rτ)
        f:         mean (m + rν)/(1+rτ),  variance r/(1+rτ) + v/(1+rτ)²
        evidence:  Σ −½ log(1+rτ) + ½ ν² r/(1+rτ)

    At the fixed point only this evidence moves with (a, r), at fixed sites:

        ∂/∂a = (ν' − τ'm) μ − τ' Σa        ∂/∂r = ½(ν' − τ'm)² − ½τ' + ½τ'² v

    A row of weight ω counts as ω rows, each with its own value f. The equations hold
    for one of them, with τ the total over ω. A row with ω < 1 is placed as a whole row
    would be: q is completed by the missing 1 − ω. The step Θ(f) has no powers to match.
    """

    eliminates = True

    def site_marginals(
        self, t: Normal, r: Tensor, stored: SiteTotals | None
    ) -> tuple[Normal, Tensor]:
        assert stored is not None
        grown = self._grown(stored, r)
        q = self._completed(t, self.feed(stored, r))
        mean = (q.mean + r * stored.nu / stored.copies) / grown
        var = r / grown + q.var / grown.square()
        return Normal(mean, var), torch.zeros_like(r)

    def _grown(self, sites: SiteTotals, r: Tensor) -> Tensor:
        return 1 + r * sites.tau / sites.copies

    def _completed(self, t: Normal, fed: SiteTotals) -> Normal:
        """Return q times the missing 1 − ω of each row with ω < 1."""
        if isinstance(fed.copies, float):
            return t

        lacks = (1 / fed.copies - 1).clamp_min(0)
        grown = 1 + lacks * fed.tau * t.var
        return Normal((t.mean + lacks * fed.nu * t.var) / grown, t.var / grown)

    def feed(self, sites: SiteTotals, r: Tensor) -> SiteTotals:
        grown = self._grown(sites, r)
        return SiteTotals(sites.tau / grown, sites.nu / grown, sites.copies)

    def complete(
        self, evidence: Tensor, stored: SiteTotals | None, r: Tensor
    ) -> Tensor:
        assert stored is not None
        grown = self._grown(stored, r)
        square = stored.nu.square() * r / (stored.copies * grown)
        log_det = stored.copies * grown.log()
        return evidence + 0.5 * (square - log_det).sum()

    def cotangents(
        self, moved: Cotangents, t: Normal, r: Tensor, stored: SiteTotals | None
    ) -> Cotangents:
        assert stored is not None
        tau, nu, copies = self.feed(stored, r)
        pull = nu - tau * t.mean
        square = (pull.square() + tau.square() * t.var) / copies
        return Cotangents(pull, -tau, 0.5 * (square - tau))


class AtMode(OnF):
    r"""Laplace: a cavity is the mode f̂ = E f. [METHOD 4, docs/decisions/0016]

    A Gaussian of zero variance has log Z = log p(y | f̂). EP's update then becomes
    Newton's, τ = −d₂, ν = d₁ + τ f̂, and its log s̃ becomes log p(y | f̂) + ½ τ f̂² − ν
    f̂. A row of weight ω ≥ 1 counts as ω rows with their own f; below 1 it is p(y |
    f)^ω.
    """

    def site_marginals(
        self, t: Normal, r: Tensor, stored: SiteTotals | None
    ) -> tuple[Normal, Tensor]:
        mode = self._f(t, r, stored).mean
        return Normal(mode, torch.zeros_like(mode)), torch.zeros_like(r)

    def feed(self, sites: SiteTotals, r: Tensor) -> SiteTotals:
        return super().feed(_at_least_one_row(sites), r)

    def complete(
        self, evidence: Tensor, stored: SiteTotals | None, r: Tensor
    ) -> Tensor:
        assert stored is not None
        return super().complete(evidence, _at_least_one_row(stored), r)

    def mode_correction(
        self, factor: Likelihood, y: Tensor, t: Normal, r: Tensor, view: BatchView
    ) -> Tensor:
        r"""Return Σ ½ S d₃ f̂ at fixed S and d₃.

        Its gradient is the part of the gradient of −½ log|I + KW(f̂)| that goes through
        the mode.
        """
        width = gather(self._f(t, r, view.totals).var[None], view.classes)[0]
        third = factor.third(view.t.mean.detach(), y)
        pull = times(view.share.copies, 0.5 * width * third).detach()
        return (pull * view.t.mean).sum()

    def _f(self, t: Normal, r: Tensor, stored: SiteTotals | None) -> Normal:
        assert stored is not None
        f, _ = super().site_marginals(t, r, _at_least_one_row(stored))
        return f


def _at_least_one_row(sites: SiteTotals) -> SiteTotals:
    """Return the totals with `copies` of at least 1, the number of their values f."""
    copies = sites.copies
    if isinstance(copies, float):
        return sites

    return sites._replace(copies=copies.clamp_min(1.0))
