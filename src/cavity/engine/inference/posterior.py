"""q(w) = Π_c N(w_c; μ_c, Σ_c) in natural form: marginals and log-normaliser. [METHOD 3]"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cavity.common.linalg import Factor, Solver, cholesky, column_sum, log_det, solver


class Sums(NamedTuple):
    """Natural parameters: what the sites add to the prior N(0, I). Always float64."""

    P: Tensor  # [C M M],  Σ_n τ a aᵀ
    h: Tensor  # [C M],    Σ_n ν a


class Normal(NamedTuple):
    """Independent normals, any shape."""

    mean: Tensor
    var: Tensor


class Posterior(NamedTuple):
    """Λ = I + P,  Λ μ = h,  g = −½ log|Λ| + ½ hᵀμ."""

    mean: Tensor  # [C M]
    lower: Tensor  # [C M M], Cholesky factor of Λ
    log_normaliser: Tensor  # [C]
    failed: Tensor  # [] bool
    by: Solver  # solves with the factor
    # [C], of q itself, if this Gaussian is a cavity of q
    q_log_normaliser: Tensor | None = None

    def part(self, classes: int) -> Posterior:
        """Return the Gaussians of the first classes."""
        return Posterior(
            self.mean[:classes],
            self.lower[:classes],
            self.log_normaliser[:classes],
            self.failed,
            Solver(self.by.matrix[:classes], self.by.inverted),
        )


class Marginals(NamedTuple):
    """t_nc = a_nc·w_c under q."""

    t: Normal  # [C B]
    half: Tensor  # [C M B],  L⁻¹a with Λ = L Lᵀ
    by: Solver

    def cov_a(self) -> Tensor:
        """Return Σ_c a_nc, [C M B], which the gradient needs."""
        return self.by.solve_t(self.half)


def posterior(sums: Sums, factor: Factor | None = None) -> Posterior:
    """Return the Gaussian with these natural parameters.

    `factor`: the Cholesky factor of Λ, if it is known.
    """
    if factor is None:
        lower, failed = cholesky(sums.P, 1.0)
    else:
        lower, failed = factor

    by = solver(lower)
    half = by.solve(sums.h[..., None])
    g = 0.5 * (half.square().sum((-2, -1)) - log_det(lower))
    return Posterior(by.solve_t(half)[..., 0], lower, g, failed, by)


def marginals(q: Posterior, a: Tensor) -> Marginals:
    """Return mean a·μ and variance aᵀΣa of every projection, [C M B] → [C B]."""
    by = q.by.to(a.dtype)
    mean = q.mean.to(a.dtype)
    half = by.solve(a)
    t = Normal(
        torch.bmm(mean[:, None, :], a)[:, 0].double(),
        column_sum(half.square()).double(),
    )
    return Marginals(t, half, by)
