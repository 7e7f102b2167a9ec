"""Variational sites: tied sites without removal. [METHOD 9]

They are averaged in the sums, which is a natural-gradient step of q, or turned into the gradient of a free mean and Cholesky
factor.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cavity.common.linalg import cholesky, inverse_lower, log_det
from cavity.inference.posterior import Posterior, Sums, posterior
from cavity.inference.sites import Share, Site, SiteStore
from cavity.inference.state import State


class Averaged(SiteStore):
    r"""Variational sites: q ∝ N(0, I) exp(Σ sites) moves by natural-gradient steps, and cavities remove nothing. [METHOD 9]

    P ← (1 − ρ|B|/N) P + ρ Σ_B τ a aᵀ, and likewise h; the evidence is −KL(q‖p).
    """

    def __init__(self, total: Tensor) -> None:
        self.total = total  # Σ weights

    def share(self, weight: Tensor, removal: float) -> Share:
        return Share(1.0, None, weight[:, None])

    def decay(self, damping: Tensor, weight: Tensor, counts: Tensor, full: bool) -> Tensor:
        return 1 - damping * weight / self.total

    def evidence(self, sums: Sums, q: Posterior) -> Tensor:
        r"""−KL(q‖N(0, I)) = Σ_c ½ (M − tr Σ − |μ|² − log|Λ|)."""
        M = sums.h.shape[-1]
        inverse = q.by.matrix if q.by.inverted else inverse_lower(q.lower)
        trace = inverse.square().sum((-2, -1))
        return 0.5 * (M - trace - q.mean.square().sum(-1) - log_det(q.lower)).sum()


class Free(Averaged):
    r"""q's mean μ and Cholesky factor L (Σ = LLᵀ) are parameters, stepped together with the hyper-parameters. [METHOD 9]

    Sites are not kept but turned into the gradient of the bound. With the sums P̂, ĥ of all rows,

        ∂/∂μ = ĥ − (I + P̂) μ        ∂/∂L = tril(L⁻ᵀ − (I + P̂) L)

    The end of θ holds μ [C M], then the lower triangles of L with the logarithm of its diagonal. At zero, q is the prior.
    """

    sweeps = False

    def __init__(self, total: Tensor, n_latent: int, n_inducing: int) -> None:
        super().__init__(total)
        self.shape = n_latent, n_inducing
        self.rows, self.columns = torch.tril_indices(n_inducing, n_inducing).to(total.device)
        self.size = n_latent * (n_inducing + len(self.rows))

    def unpack(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return μ [C M] and L [C M M] in float64."""
        C, M = self.shape
        mean, packed = torch.split(theta[-self.size :].double(), [C * M, C * len(self.rows)])
        lower = torch.zeros(C, M, M, dtype=torch.float64, device=theta.device)
        lower[:, self.rows, self.columns] = packed.reshape(C, -1)
        diagonal = lower.diagonal(dim1=-2, dim2=-1)
        diagonal.copy_(diagonal.exp())
        return mean.reshape(C, M), lower

    def adopt(self, theta: Tensor, sums: Sums) -> Tensor:
        """Return θ with the q of these sums at its end."""
        q = posterior(sums)
        half = inverse_lower(q.lower)
        lower, _ = cholesky(half.mT @ half)
        diagonal = lower.diagonal(dim1=-2, dim2=-1)
        diagonal.copy_(diagonal.log())
        end = torch.cat([q.mean.flatten(), lower[:, self.rows, self.columns].flatten()])
        return torch.cat([theta[: len(theta) - self.size], end.to(theta.dtype)])

    def place(self, theta: Tensor, sums: Sums) -> Sums:
        mean, lower = self.unpack(theta)
        eye = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)
        inverse = inverse_lower(lower)
        precision = inverse.mT @ inverse
        return Sums(precision - eye, (precision @ mean[..., None])[..., 0])

    def added(self, stored: Site, site: Site, usable: Tensor, damping: Tensor, full: bool) -> Site:
        return site

    def collect(self, sums: Sums, added: Sums, decay: Tensor) -> Sums:
        return sums

    def slope(self, state: State, q: Posterior, sums: Sums) -> Tensor:
        mean, lower = self.unpack(state.theta)
        d_mean = sums.h - mean - (sums.P @ mean[..., None])[..., 0]
        d_lower = -(lower + sums.P @ lower)
        diagonal = lower.diagonal(dim1=-2, dim2=-1)
        d_diagonal = d_lower.diagonal(dim1=-2, dim2=-1)
        d_diagonal.mul_(diagonal).add_(1)  # in log L_ii, and the diagonal of L⁻ᵀ is 1/L_ii
        slopes = torch.cat([d_mean.flatten(), d_lower[:, self.rows, self.columns].flatten()])
        return slopes.to(state.theta.dtype)
