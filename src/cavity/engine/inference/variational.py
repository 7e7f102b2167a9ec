"""Variational sites: tied sites without removal. [METHOD 9]

They are averaged in the sums, which is a natural-gradient step of q.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from cavity.common.linalg import inverse_lower, log_det
from cavity.engine.inference.posterior import Posterior, Sums
from cavity.engine.inference.sites import Share, SiteStore


@dataclass(frozen=True, eq=False)
class Averaged(SiteStore):
    r"""Variational sites: q ∝ N(0, I) exp(Σ sites) moves by natural-gradient steps, and
    cavities remove nothing. [METHOD 9]

    P ← (1 − ρ|B|/N) P + ρ Σ_B τ a aᵀ, and likewise h; the evidence is −KL(q‖p).
    """

    total: Tensor  # Σ weights

    def share(self, weight: Tensor, removal: float) -> Share:
        return Share(1.0, None, weight[:, None])

    def decay(
        self, damping: Tensor, weight: Tensor, counts: Tensor, full: bool
    ) -> Tensor:
        return 1 - damping * weight / self.total

    def evidence(self, sums: Sums, q: Posterior) -> Tensor:
        r"""−KL(q‖N(0, I)) = Σ_c ½ (M − tr Σ − |μ|² − log|Λ|)."""
        M = sums.h.shape[-1]
        if q.by.inverted:
            inverse = q.by.matrix
        else:
            inverse = inverse_lower(q.lower)

        trace = inverse.square().sum((-2, -1))
        return 0.5 * (M - trace - q.mean.square().sum(-1) - log_det(q.lower)).sum()
