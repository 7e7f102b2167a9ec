"""Kernels and inducing points → the whitened projection, the one place where kernels enter. [METHOD 2]"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cavity.linalg import cholesky, solve_lower


class Projection(NamedTuple):
    """f_c(x_n) | w_c ~ N(a·w_c, r),  w_c ~ N(0, I)."""

    a: Tensor  # [C M B]
    r: Tensor  # [C B], noise included
    failed: Tensor  # [] bool: k(Z, Z) could not be factorised


class Prior(nn.Module):
    """The hyper-parameters: kernel, inducing inputs, latent noise.

    Inducing inputs are stepped in units of each column's spread, the noise in logs. Where classes share something,
    its leading axis is 1 instead of C.
    """

    def __init__(
        self,
        kernel: Any,
        Z: Tensor,
        noise: Tensor,
        center: Tensor,
        spread: Tensor,
        n_latent: int,
        learn: frozenset[str],
    ) -> None:
        super().__init__()
        self.kernel = kernel
        self.n_latent = n_latent
        self.register_buffer("center", center)
        self.register_buffer("spread", spread)
        self.learn_inducing, self.learn_noise = "inducing" in learn, "noise" in learn
        if self.learn_inducing:
            self.inducing = nn.Parameter((Z - center) / spread)
        else:
            self.register_buffer("inducing", Z)  # to the last bit as given
        if self.learn_noise:
            self.log_noise = nn.Parameter(noise.log())
        else:
            self.register_buffer("fixed_noise", noise)

    @property
    def Z(self) -> Tensor:
        """Inducing inputs [C M D] (or [1 M D]) in the user's units."""
        return self.center + self.spread * self.inducing if self.learn_inducing else self.inducing

    @property
    def noise(self) -> Tensor:
        """Latent noise variances, [C] or [1]."""
        return self.log_noise.exp() if self.learn_noise else self.fixed_noise

    def factor(self, jitter: Tensor) -> tuple[Tensor, Tensor]:
        """L = chol(k(Z, Z) + jitter), the jitter relative to the amplitude."""
        K = self.kernel.full(self.Z)
        scale = jitter.to(K.dtype) * K.diagonal(dim1=-2, dim2=-1).mean(-1)
        eye = torch.eye(K.shape[-1], dtype=K.dtype, device=K.device)
        return cholesky(K + scale[..., None, None] * eye)

    def project(self, X: Tensor, jitter: Tensor) -> Projection:
        r"""a = L⁻¹ k(Z, x),    r = k(x, x) + s − |a|².        [METHOD 2]"""
        L, failed = self.factor(jitter)
        return self.project_with(L, failed, X)

    def project_with(self, L: Tensor, failed: Tensor, X: Tensor) -> Projection:
        """The projection, given the factor of k(Z, Z)."""
        a = solve_lower(L, self.kernel.cross(self.Z, X))
        residual = self.kernel.diag(X) - a.square().sum(-2)
        # rounding can leave −1e-16 where x is an inducing point; a variance is not negative
        r = residual.clamp_min(0) + self.noise[:, None]
        return Projection(a.expand(self.n_latent, -1, -1), r.expand(self.n_latent, -1), failed)
