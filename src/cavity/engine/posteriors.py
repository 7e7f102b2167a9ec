"""What inference finds: q, and predictions from it. [METHOD 8]"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cavity.common.linalg import solve_lower
from cavity.engine.inference import Coupled, Engine, State
from cavity.engine.inference.coupled import cov_of
from cavity.engine.inference.posterior import Normal, posterior
from cavity.engine.likelihoods.quadrature.correlated import log_softmax_probability
from cavity.engine.models import GP


class InducingValues(NamedTuple):
    """q(u) = Π_c N(u_c; mean_c, cov_c), u_c the latent function c at its points."""

    mean: Tensor  # [C M]
    cov: Tensor  # [C M M]; within classes, if q couples them


class Joint(NamedTuple):
    """Normals over rows, one for each latent function."""

    mean: Tensor  # [C n]
    cov: Tensor  # [C n n]


@dataclass(frozen=True)
class Posterior:
    """What `infer` finds: q, and predictions from it.

    Attributes
    ----------
    gp : GP
        The model.
    engine, state : Engine, State
        The engine's own view: `engine.step(state, ...)` goes on from here.
    log_evidence : float
        log Z_q, the approximate log marginal likelihood.
    residual : float
        How far one more undamped sweep would move h, relative to its length: near 0 at
        a fixed point.
    """

    gp: GP
    engine: Engine = field(repr=False)
    state: State = field(repr=False)
    log_evidence: float
    residual: float

    @cached_property
    def whitened(self) -> InducingValues:
        """q(w) of the whitened values w_c = L_c⁻¹ u_c, whose prior is N(0, I)."""
        q = posterior(self.state.sums)
        C = self.gp.n_latent
        M = self.engine.prior.size
        eye = torch.eye(q.lower.shape[-1], dtype=q.lower.dtype, device=q.lower.device)
        half = solve_lower(q.lower, eye.expand_as(q.lower))  # Λ = L Lᵀ, [C M M]
        cov = half.mT @ half
        if len(cov) != C:  # one block of all classes
            starts = range(0, C * M, M)
            cov = torch.stack([cov[0, i : i + M, i : i + M] for i in starts])

        return InducingValues(q.mean.reshape(C, M), cov)

    @cached_property
    def q(self) -> InducingValues:
        """q(u) of the latent functions at the inducing points."""
        self.engine.load(self.state.theta)
        with torch.no_grad():
            lower = self.engine.prior.factor(self.state.jitter).lower.double()
        mean, cov = self.whitened
        return InducingValues((lower @ mean[..., None])[..., 0], lower @ cov @ lower.mT)

    @torch.no_grad()
    def latent(self, X: Any) -> Normal:
        """Return mean and variance of f at rows, without the noise, each [C n]."""
        mean, cov = self.whitened
        parts = []
        for piece, a in self._project(X):
            rest = self._prior_variance(piece) - a.square().sum(1)
            var = rest.clamp_min(0) + (a * (cov @ a)).sum(1)
            parts.append(Normal((mean[:, None] @ a)[:, 0], var))

        means, variances = zip(*parts, strict=True)
        return Normal(torch.cat(means, 1), torch.cat(variances, 1))

    @torch.no_grad()
    def joint(self, X: Any) -> Joint:
        """Return the joint normal of each latent function at rows, without noise."""
        mean, cov = self.whitened
        X = self._read_rows(X)
        a = torch.cat([a for _, a in self._project(X)], 2)
        K = self.engine.prior.kernel.cross(X[None], X).double()
        lacks = self._prior_variance(X) - K.diagonal(dim1=-2, dim2=-1)
        K = K + torch.diag_embed(lacks.clamp_min(0))
        whole = K - a.mT @ a + a.mT @ cov @ a
        return Joint((mean[:, None] @ a)[:, 0], 0.5 * (whole + whole.mT))

    def draw(self, X: Any, n_draws: int, seed: int = 0) -> Tensor:
        """Return draws of the latent functions, jointly over rows, [S C n]."""
        mean, cov = self.joint(X)
        values, vectors = torch.linalg.eigh(cov)
        root = vectors * values.clamp_min(0).sqrt()[:, None]
        generator = torch.Generator().manual_seed(seed)
        shape = (n_draws, *mean.shape)
        normal = torch.randn(shape, generator=generator, dtype=torch.float64).to(mean)
        return mean + torch.einsum("cnk,sck->scn", root, normal)

    def predict(self, X: Any) -> Tensor:
        """Return class probabilities of rows, [n C]."""
        return self.predict_log(X).exp()

    @torch.no_grad()
    def predict_log(self, X: Any) -> Tensor:
        """Return the logarithms of class probabilities, [n C]."""
        f = self.latent(X)
        noise = self.engine.prior.noise.double()[:, None]
        mean = f.mean.mT
        if not isinstance(self.engine, Coupled):
            return self.engine.factor.log_probability(mean, (f.var + noise).mT)

        lower = posterior(self.state.sums).lower
        parts = []
        for piece, a in self._project(X):
            rest = self._prior_variance(piece) + noise - a.square().sum(1)
            parts.append(cov_of(lower, a) + torch.diag_embed(rest.clamp_min(0).mT))
        return log_softmax_probability(mean, torch.cat(parts))

    def _read_rows(self, X: Any) -> Tensor:
        return torch.as_tensor(X).to(self.engine.prior.center)

    def _project(self, X: Any) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield pieces of rows, each with a = L⁻¹ k(Z, x), [C M n]."""
        self.engine.load(self.state.theta)
        for piece in torch.split(self._read_rows(X), self.engine.chunk):
            yield piece, self.engine.prior.project(piece, self.state.jitter).a.double()

    def _prior_variance(self, X: Tensor) -> Tensor:
        return self.engine.prior.kernel.diag(X).double()
