"""q(w) = Π_c N(w_c; μ_c, Σ_c) in natural form: marginals and log-normaliser. [METHOD 3]"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cavity.linalg import cholesky, column_sum, log_det, solve_lower, solve_lower_t


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


class Marginals(NamedTuple):
    """t_nc = a_nc·w_c under q, and Σ_c a_nc, which the gradient needs."""

    t: Normal  # [C B]
    cov_a: Tensor  # [C M B],  Σ_c a_nc


def posterior(sums: Sums) -> Posterior:
    """Normalise natural parameters."""
    lower, half, g, failed = _normalise(sums)
    return Posterior(solve_lower_t(lower, half)[..., 0], lower, g, failed)


def log_normaliser(sums: Sums) -> tuple[Tensor, Tensor]:
    """g_c [C] alone, and whether it failed."""
    _, _, g, failed = _normalise(sums)
    return g, failed


def _normalise(sums: Sums) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The factor of Λ; its solve of h [C M 1]; g = −½ log|Λ| + ½ |half|²; whether it failed."""
    lower, failed = cholesky(sums.P, 1.0)
    half = solve_lower(lower, sums.h[..., None])
    return lower, half, 0.5 * (half.square().sum((-2, -1)) - log_det(lower)), failed


def marginals(q: Posterior, a: Tensor) -> Marginals:
    """Mean a·μ and variance aᵀΣa of every projection, [C M B] → [C B]."""
    lower, mean = q.lower.to(a.dtype), q.mean.to(a.dtype)
    half = solve_lower(lower, a)
    t = Normal(torch.bmm(mean[:, None, :], a)[:, 0].double(), column_sum(half.square()).double())
    return Marginals(t, solve_lower_t(lower, half))
