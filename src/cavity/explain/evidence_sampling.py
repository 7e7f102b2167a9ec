"""How far to trust a fit: importance sampling of the model's evidence with q as proposal. [thesis 3.2.3]"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavity.common.linalg import log_det, solve_lower_t
from cavity.errors import BadInput, missing_extra
from cavity.inference.posterior import Normal
from cavity.prediction.model import FittedModel
from cavity.prediction.predict import PREDICT_BYTES, log_probabilities

Array = NDArray[np.float64]
POINT = 1e-6  # a residual variance below which the likelihood sees a point
LEAST = 1e-10  # of a residual variance: the likelihood's integrals need a width
LIGHT_TAIL = 0.7  # Pareto's k below which smoothed weights have a usable mean
NEAR = 0.1  # nats per dimension by which a q may differ from the posterior and still be near it

VERDICTS = {
    "good": "good: q covers the posterior, and the sampled evidence can be trusted",
    "usable": (
        "usable: q is thin in places, and the sampled evidence is less sure than its error says. What to do: raise n_samples=; "
        "compare the probabilities with those of another method"
    ),
    "unclear": (
        "unclear: q is near the posterior ({each:.2g} nats per dimension), but {n} samples are too few for {d} dimensions, so the "
        "sampled evidence cannot be trusted. What to do: repeat with fewer inducing points or n_samples={n}0, or judge the "
        "probabilities by rows that were held out"
    ),
    "poor": (
        "poor: q misses part of the posterior ({each:.2g} nats per dimension), and neither it nor the sampled evidence can be "
        "trusted. What to do: check that training converged; use REP(epsilon=0) or method='gfitc', which are nearer than "
        "method='vi'; raise noise= if it is very small; judge the probabilities by rows that were held out"
    ),
}


class Diagnosis(NamedTuple):
    """What weighted samples of q say about a fit.

    Three numbers decide together. The effective sample size says how many samples the weighted ones are worth. Pareto's k says how
    heavy the tail of the weights is; it means nothing while all weights are nearly equal. `excess` per dimension says how far q is
    from the posterior: in hundreds of dimensions a small distance in each leaves few effective samples, even of a good q.
    """

    log_marginal_likelihood: float  # of the model, by Pareto-smoothed importance sampling
    standard_error: float  # of it
    approximation: float  # log Z_q, or the bound, at the same rows' fit
    effective_sample_size: float
    pareto_k: float  # of the tail of the weights
    n_samples: int
    dimension: int  # number of values that q describes
    excess: float  # KL(q ‖ posterior) in nats: the larger evidence minus the mean log-weight

    @property
    def level(self) -> str:
        """Return "good", "usable", "unclear" (too many dimensions for these samples) or "poor"."""
        ess, efficiency = self.effective_sample_size, self.effective_sample_size / self.n_samples
        light = self.pareto_k < LIGHT_TAIL
        if efficiency >= 0.5 or (light and ess >= 100):
            return "good"
        if (efficiency >= 0.1 or light) and ess >= 25:
            return "usable"
        return "unclear" if self.excess <= NEAR * self.dimension else "poor"

    @property
    def verdict(self) -> str:
        """Return the verdict in a sentence, and what to do."""
        d = self.dimension
        return VERDICTS[self.level].format(d=d, n=self.n_samples, each=self.excess / d)

    def __str__(self) -> str:
        gap = self.approximation - self.log_marginal_likelihood
        has_none = "the fit has no value of its own"
        own = has_none if math.isnan(gap) else f"the fit's own value is {gap:+.3f} off"
        return (
            f"log evidence {self.log_marginal_likelihood:.3f} ± {self.standard_error:.3f} by {self.n_samples} samples of q "
            f"(effective {self.effective_sample_size:.0f}, Pareto k {self.pareto_k:.2f}, {self.dimension} dimensions); {own}. "
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
    # samples of a poor q miss most of the evidence; the fit's own value may not
    best = log_z if math.isnan(approximation) else max(log_z, approximation)
    excess = max(best - float(log_weights.mean()), 0.0)
    return Diagnosis(log_z, error, approximation, ess, k, n, model.mean.size, excess)


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
    prior_lower, mean, lower = map(torch.as_tensor, (model.prior_lower, model.mean, model.lower))
    projection = model.prior.project_with(prior_lower, X.to(mean.dtype))
    a, r = projection.a.double(), projection.r.double().clamp_min(LEAST).mT  # [C M N], [N C]
    blocks, size = mean.shape
    z = torch.tensor(rng.standard_normal((n, blocks, size, 1)))
    lower = lower.double()
    w = mean.double() + torch.stack([solve_lower_t(lower, one)[..., 0] for one in z])
    ratio = 0.5 * (z.square().sum((1, 2, 3)) - w.square().sum((1, 2)) - log_det(lower).sum())
    # samples whose latent values fit into memory together
    parts = torch.split(w, max(1, PREDICT_BYTES // (8 * len(a) * a.shape[2])))
    likelihood = torch.cat([_log_likelihood(model, part, a, r, y, weight) for part in parts])
    return np.asarray((ratio + likelihood).numpy())


def _log_likelihood(model: FittedModel, w: Tensor, a: Tensor, r: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Σ_n ω_n log p(y_n | w) of samples w, [S]: rows are independent given w, each f with its residual variance."""
    S, (C, _, N) = len(w), a.shape
    t = torch.einsum("scm,cmn->snc", w.reshape(S, C, -1), a).reshape(S * N, C)
    if model.likelihood.points and float(r.max()) < POINT:
        log_p = model.likelihood.log_probability_at(t)
    else:
        log_p = torch.from_numpy(log_probabilities(model, Normal(t, r.repeat(S, 1))))
    own = log_p.gather(1, y.repeat(S)[:, None]).reshape(S, N)
    return own @ weight
