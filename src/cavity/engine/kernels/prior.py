"""Kernels and inducing points → the whitened projection.

Kernels enter the model only here. [METHOD 2]
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cavity.common.linalg import Factor, column_sum, jittered_cholesky, whiten
from cavity.engine.kernels.base import formula_of
from cavity.engine.kernels.formulas import Formula
from cavity.engine.parameters import Placed, Setting


class Projection(NamedTuple):
    """f_c(x_n) | w_c ~ N(a·w_c, r),  w_c ~ N(0, I)."""

    a: Tensor  # [C M B]
    variance: Tensor  # [C B], k(x, x) + s
    failed: Tensor  # [] bool: k(Z, Z) could not be factorised

    @property
    def r(self) -> Tensor:
        """Residual variance [C B], noise included.

        It is clamped at 0: rounding can give −1e-16 at an inducing point.
        """
        return (self.variance - column_sum(self.a.square())).clamp_min(0)


class Prior(nn.Module):
    """The hyper-parameters: kernel, inducing inputs, latent noise.

    Optimisers step inducing inputs in units of each column's spread, and the logarithm
    of the noise. Values that classes share have a leading axis of 1 instead of C.
    """

    center: Tensor
    spread: Tensor
    inducing: Tensor
    fixed_noise: Tensor

    def __init__(
        self,
        kernel: Any,
        Z: Tensor,
        noise: Tensor,
        *,
        center: Tensor,
        spread: Tensor,
        n_latent: int,
        learn: frozenset[str],
        noise_setting: Setting | None = None,
    ) -> None:
        super().__init__()
        self.kernel = kernel
        self.noise_setting = noise_setting
        self.n_latent = n_latent
        self.register_buffer("center", center)
        self.register_buffer("spread", spread)
        self.learn_inducing = "inducing" in learn
        self.learn_noise = "noise" in learn
        if self.learn_inducing:
            self.inducing = nn.Parameter((Z - center) / spread)
        else:
            self.register_buffer("inducing", Z)  # bit for bit as given

        if self.learn_noise:
            self.log_noise = nn.Parameter(noise.log())
        else:
            self.register_buffer("fixed_noise", noise)

    @property
    def learnt(self) -> list[str]:
        """The names of what is learnt: "kernel", "noise", "inducing"."""
        names = []
        known = self.kernel.parameters() if isinstance(self.kernel, nn.Module) else ()
        if any(p.requires_grad for p in known):
            names.append("kernel")
        if self.learn_noise:
            names.append("noise")
        if self.learn_inducing:
            names.append("inducing")
        return names

    def settings(self) -> dict[str, Placed]:
        """Return the setting of the noise by the name of its parameter, if it has one."""
        if self.noise_setting is None:
            return {}

        return {"log_noise": Placed(self.noise_setting)}

    @property
    def size(self) -> int:
        """M, the number of inducing inputs per latent function."""
        return self.inducing.shape[-2]

    @property
    def Z(self) -> Tensor:
        """Inducing inputs [C M D] (or [1 M D]) in the user's units."""
        if self.learn_inducing:
            return torch.addcmul(self.center, self.spread, self.inducing)

        return self.inducing

    @property
    def noise(self) -> Tensor:
        """Latent noise variances, [C] or [1]."""
        if self.learn_noise:
            return self.log_noise.exp()

        return self.fixed_noise

    def factor(self, jitter: Tensor) -> Factor:
        """Return L = chol(k(Z, Z) + jitter), the jitter relative to the amplitude."""
        K = self.kernel.full(self.Z)
        lower, failed = jittered_cholesky(K, jitter)
        return Factor(lower.to(K.dtype), failed)

    def project(self, X: Tensor, jitter: Tensor) -> Projection:
        """Project rows: a = L⁻¹ k(Z, x),  r = k(x, x) + s − |a|². [METHOD 2]"""
        Z = self.Z
        a, failed = whiten(self.kernel.full(Z), self.kernel.cross(Z, X), jitter)
        return self._projection(a, X, failed)

    def formula(self, xp: Any) -> Formula:
        """Return the covariances of f with the inducing values, as numbers of `xp`."""
        return formula_of(self.kernel, xp)

    def _projection(self, a: Tensor, X: Tensor, failed: Tensor) -> Projection:
        C = self.n_latent
        variance = self.kernel.diag(X) + self.noise[:, None]
        return Projection(a.expand(C, -1, -1), variance.expand(C, -1), failed)
