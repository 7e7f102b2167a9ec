"""Variational sites: tied sites without removal. [METHOD 9]

They are averaged in the sums, which is a natural-gradient step of q, or turned into the
gradient of a free mean and Cholesky factor.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cavity.common.linalg import cholesky, inverse_lower, log_det
from cavity.engine.inference.posterior import Posterior, Sums, posterior
from cavity.engine.inference.sites import Share, Site, SiteStore
from cavity.engine.inference.state import State


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


@dataclass(frozen=True, eq=False)
class Free(Averaged):
    r"""Mean μ and Cholesky factor L of q (Σ = LLᵀ) are parameters, stepped together with
    the hyper-parameters. [METHOD 9]

    Sites are not kept. With P̂ and ĥ, the sums of all rows' sites, the bound has

        ∂/∂μ = ĥ − (I + P̂) μ        ∂/∂L = tril(L⁻ᵀ − (I + P̂) L)

    The end of θ holds μ [C M], then the lower triangles of L with the logarithm of its
    diagonal. At zero, q is the prior.
    """

    shape: tuple[int, int]  # [C M]

    @property
    def size(self) -> int:  # type: ignore[override]
        C, M = self.shape
        return C * (M + M * (M + 1) // 2)

    def added(
        self, stored: Site, site: Site, usable: Tensor, damping: Tensor, full: bool
    ) -> Site:
        return site

    def collect(self, sums: Sums, added: Sums, decay: Tensor) -> Sums:
        return sums

    def slope(self, theta: Tensor, added: Sums, scale: Tensor) -> Tensor:
        mean, L = self._unpack(theta)
        d_mean = scale * added.h - mean - scale * (added.P @ mean[..., None])[..., 0]
        d_L = -(L + scale * (added.P @ L))
        # in log L_ii; the diagonal of L⁻ᵀ is 1/L_ii
        d_log = 1 + d_L.diagonal(dim1=-2, dim2=-1) * L.diagonal(dim1=-2, dim2=-1)
        return self._pack(d_mean, d_L.diagonal_scatter(d_log, 0, -2, -1)).to(theta)

    def place(self, state: State) -> State:
        r"""P = Σ⁻¹ − I      h = Σ⁻¹ μ"""
        mean, L = self._unpack(state.theta)
        inverse = inverse_lower(L)
        precision = inverse.mT @ inverse
        eye = torch.eye(self.shape[1], dtype=L.dtype, device=L.device)
        h = (precision @ mean[..., None])[..., 0]
        return state._replace(sums=Sums(precision - eye, h))

    def adopt(self, state: State) -> State:
        q = posterior(state.sums)
        inverse = inverse_lower(q.lower)
        L, _ = cholesky(inverse.mT @ inverse)
        log = L.diagonal(dim1=-2, dim2=-1).log()
        of_q = self._pack(q.mean, L.diagonal_scatter(log, 0, -2, -1))
        learnt = state.theta[: len(state.theta) - self.size]
        return self.place(
            state._replace(theta=torch.cat([learnt, of_q.to(state.theta)]))
        )

    def _pack(self, mean: Tensor, lower: Tensor) -> Tensor:
        rows, columns = self._places(mean.device)
        return torch.cat([mean.flatten(), lower[:, rows, columns].flatten()])

    def _unpack(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return μ [C M] and L [C M M] in float64."""
        C, M = self.shape
        of_q = theta[len(theta) - self.size :].double()
        mean = of_q[: C * M].reshape(C, M)
        rows, columns = self._places(theta.device)
        lower = of_q.new_zeros(C, M, M)
        lower[:, rows, columns] = of_q[C * M :].reshape(C, -1)
        diagonal = lower.diagonal(dim1=-2, dim2=-1).exp()
        return mean, lower.diagonal_scatter(diagonal, 0, -2, -1)

    def _places(self, device: torch.device) -> Tensor:
        M = self.shape[1]
        return torch.tril_indices(M, M, device=device)
