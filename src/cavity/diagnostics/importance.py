"""How far to trust a fit: importance sampling of the model's evidence with q as proposal. [thesis 3.2.3]"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavity.errors import BadInput, missing_extra
from cavity.linalg import log_det, solve_lower_t
from cavity.posterior import Normal
from cavity.prediction.model import PREDICT_BYTES, FittedModel, log_probabilities

Array = NDArray[np.float64]
POINT = 1e-6  # a residual variance below which the likelihood sees a point
LEAST = 1e-10  # of a residual variance: the likelihood's integrals need a width


class Diagnosis(NamedTuple):
    """What weighted samples of q say about a fit."""

    log_marginal_likelihood: float  # of the model, by Pareto-smoothed importance sampling
    standard_error: float  # of it
    approximation: float  # log Z_q, or the bound, at the same rows' fit
    effective_sample_size: float
    pareto_k: float  # below 0.5 good, up to 0.7 usable, above it q misses too much of the posterior
    n_samples: int

    @property
    def verdict(self) -> str:
        """Return the verdict in a sentence."""
        if self.pareto_k < 0.5:
            return "good: q covers the posterior, and the sampled evidence can be trusted"
        if self.pareto_k < 0.7:
            return "usable: q is thin in places, and the sampled evidence is less sure than its error says"
        return "poor: q misses part of the posterior, and neither it nor the sampled evidence can be trusted"

    def __str__(self) -> str:
        gap = self.approximation - self.log_marginal_likelihood
        return (
            f"log evidence {self.log_marginal_likelihood:.3f} ± {self.standard_error:.3f} by {self.n_samples} samples of q "
            f"(effective {self.effective_sample_size:.0f}, Pareto k {self.pareto_k:.2f}); the fit's own value is {gap:+.3f} off. "
            f"{self.verdict}."
        )


def diagnose(
    model: FittedModel, X: Array, y: NDArray[np.int64], weight: Array, approximation: float, n: int, rng: Any
) -> Diagnosis:
    """Sample q(w) and weight each sample by p(y | w) p(w)/q(w)."""
    log_weights = importance_weights(model, torch.tensor(X), torch.tensor(y), torch.tensor(weight), n, rng)
    if not np.isfinite(log_weights).all():
        raise BadInput(
            "the likelihood of some row is 0 under q: these are not rows that the model was fitted to."
        )
    smoothed, k = _smooth(log_weights)
    ess = float(1 / np.exp(2 * smoothed).sum())
    lowest = int(np.argmin(log_weights))  # smoothing touches the largest alone
    log_z = float(log_weights[lowest] - smoothed[lowest]) - math.log(n)
    error = math.sqrt(max(1 / ess - 1 / n, 0.0))
    return Diagnosis(log_z, error, approximation, ess, k, n)


def _smooth(log_weights: Array) -> tuple[Array, float]:
    """Return normalised log-weights, the largest replaced by quantiles of a Pareto tail, and its shape."""
    try:
        from arviz_stats.base import array_stats
    except ImportError:
        raise missing_extra("arviz-stats", "diagnose") from None
    smoothed, k = array_stats.psislw(-log_weights)  # it expects the inverse of a leave-one-out weight
    return np.asarray(smoothed), float(k)


@torch.no_grad()
def importance_weights(model: FittedModel, X: Tensor, y: Tensor, weight: Tensor, n: int, rng: Any) -> Array:
    r"""log p(y | w) + log p(w) − log q(w) at w = μ + Λ^{−T/2} z, [n]."""
    projection = model.prior.project_with(model.prior_lower, X.to(model.mean.dtype))
    a, r = projection.a.double(), projection.r.double().clamp_min(LEAST).mT  # [C M N], [N C]
    blocks, size = model.mean.shape
    z = torch.tensor(rng.standard_normal((n, blocks, size, 1)))
    lower = model.lower.double()
    w = model.mean.double() + torch.stack([solve_lower_t(lower, one)[..., 0] for one in z])
    ratio = 0.5 * (z.square().sum((1, 2, 3)) - w.square().sum((1, 2)) - log_det(lower).sum())
    likelihood = torch.cat(
        [_log_likelihood(model, part, a, r, y, weight) for part in torch.split(w, _at_once(a))]
    )
    return np.asarray((ratio + likelihood).numpy())


def _at_once(a: Tensor) -> int:
    """Return how many samples have latent values that fit into memory together."""
    return max(1, PREDICT_BYTES // (8 * len(a) * a.shape[2]))


def _log_likelihood(model: FittedModel, w: Tensor, a: Tensor, r: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Σ_n ω_n log p(y_n | w) of samples w, [S]: rows are independent given w, each f with its residual variance."""
    S, (C, _, N) = len(w), a.shape
    t = torch.einsum("scm,cmn->snc", w.reshape(S, C, -1), a).reshape(S * N, C)
    if model.likelihood.points and float(r.max()) < POINT:
        log_p = model.likelihood.log_probability_at(t)
    else:
        log_p = log_probabilities(model, Normal(t, r.repeat(S, 1)))
    own = log_p.gather(1, y.repeat(S)[:, None]).reshape(S, N)
    return own @ weight
