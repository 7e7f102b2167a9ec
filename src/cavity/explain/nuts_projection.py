"""The projection of the rows of a small table, for many hyper-parameters: covariances in torch, whitening in NumPy. [METHOD 2]"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cavity.common.linalg import share_classes
from cavity.kernels import Kernel
from cavity.kernels.prior import Prior

Array = NDArray[np.float64]


class Projected(NamedTuple):
    """The projection of all rows, and the way back to what autograd recorded."""

    a: Array  # [C M N]
    r: Array  # [C N]
    outputs: tuple[Tensor, ...]
    pull_back: Callable[
        [Array, Array], tuple[Array, ...]
    ]  # cotangents of a and k(x, x) + s → those of the outputs


class FixedRows:
    """The projection of one table as a function of the hyper-parameters: covariances in torch, whitening in NumPy."""

    def __init__(self, prior: Prior, X: Tensor) -> None:
        self.prior, self.X = prior, X
        fixed = type(prior) is Prior and not prior.learn_inducing and isinstance(prior.kernel, Kernel)
        self.pair = prior.kernel.fix_points(prior.Z, X) if fixed else None
        M = prior.size
        self.eye, self.half = np.eye(M), np.tril(np.ones((M, M))) - 0.5 * np.eye(M)

    def project(self, jitter: Tensor) -> Projected:
        """Raise LinAlgError if k(Z, Z) has no factor."""
        if self.pair is None:
            projection = self.prior.project(self.X, jitter)
            if bool(projection.failed):
                raise np.linalg.LinAlgError
            a, variance = (x.detach().numpy() for x in projection[:2])
            return Projected(a, _residual(a, variance), projection[:2], lambda G_a, G_r: (G_a, G_r))
        K, B = share_classes(*self.pair())
        return self._whiten(K, B, self.prior.variance(self.X), float(jitter))

    def _whiten(self, K: Tensor, B: Tensor, variance: Tensor, jitter: float) -> Projected:
        """Return what `linalg.whiten` does, and its derivatives, by products with L⁻¹."""
        full, cross, diag = (x.detach().numpy() for x in (K, B, variance))
        inverse = np.linalg.inv(np.linalg.cholesky(full + jitter * _mean_diagonal(full) * self.eye))
        a, turned = inverse @ cross, inverse.transpose(0, 2, 1)
        C = self.prior.n_latent

        def pull_back(G_a: Array, G_r: Array) -> tuple[Array, ...]:
            G, G_r = (G.sum(0, keepdims=True) if len(x) < C else G for G, x in ((G_a, a), (G_r, diag)))
            K_bar = -turned @ ((G @ a.transpose(0, 2, 1)) * self.half) @ inverse
            return K_bar + jitter * _mean_diagonal(K_bar) * self.eye, turned @ G, G_r

        a_all = np.broadcast_to(a, (C, *a.shape[1:]))
        return Projected(a_all, _residual(a_all, diag), (K, B, variance), pull_back)


def _residual(a: Array, variance: Array) -> Array:
    return np.maximum(variance - np.einsum("cmn,cmn->cn", a, a), 0)


def _mean_diagonal(K: Array) -> Array:
    return np.trace(K, axis1=1, axis2=2)[:, None, None] / K.shape[1]
