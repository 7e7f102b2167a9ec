"""Split a prediction's entropy into noise (aleatoric) and uncertainty about f (epistemic). [docs/decisions/0014]"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from cavity.common.linalg import concatenate
from cavity.likelihoods.normal_tails import log_normal_pdf
from cavity.likelihoods.quadrature.grid import ORDER, SPREAD, bumps, piecewise_legendre
from cavity.likelihoods.quadrature.noisy_argmax import Choice, Largest
from cavity.likelihoods.quadrature.probabilities import with_random_labels

POINTS = 1024  # Sobol points for three and more contenders
MANY = 16  # contenders above which Sobol points are hardly better than random ones, and four times as many are used
DROPPED = 1e-5  # total probability of the classes that a row may ignore
BYTES = 4 << 20  # of one array over a piece's nodes


class Information(NamedTuple):
    """Two parts of the entropy in nats, [n]."""

    aleatoric: Tensor  # E_f H(p(y|f))
    epistemic: Tensor  # E_f KL(p(y|f) ‖ p(y)), the mutual information of y and f


class EntropyParts(NamedTuple):
    """Entropy of the label, H(p(y)), and its parts in nats, [n]."""

    total: Tensor
    aleatoric: Tensor
    epistemic: Tensor


class Latent(NamedTuple):
    """Noise-free latent values, [n C] (or [n 1], the difference of two), and what they predict, [n C] (or [n 2])."""

    mean: Tensor
    var: Tensor
    log_p: Tensor  # log p(y), without random labels
    epsilon: float  # share of labels drawn at random

    def rows(self, index: Tensor) -> Latent:
        """Return the values of some rows."""
        return Latent(self.mean[index], self.var[index], self.log_p[index], self.epsilon)

    def log_mean(self) -> Tensor:
        """Return log p(y), with random labels."""
        return with_random_labels(self.log_p, self.epsilon, self.log_p.shape[1])


def uncertainty(f: Latent, choice: Choice) -> EntropyParts:
    """Return the label's entropy, the part that would remain if f were known, and the part that knowing f would remove."""
    log_mean = f.log_mean()
    return EntropyParts(-(log_mean.exp() * log_mean).sum(1), *information(f, choice))


def information(f: Latent, choice: Choice) -> Information:
    r"""Return both averages, each taken directly over the same f, so that neither is a small difference of large numbers.

        total H(p(y)) = aleatoric + epistemic        p(y) = E_f p(y|f)

    holds exactly for the integrals. One latent function or two contenders: a one-dimensional grid, near machine precision. More:
    Sobol points, each average accurate to a few 1e-3. Without noise p(y|f) is certain, and all of the entropy is epistemic.
    """
    if isinstance(choice, Largest) and not choice.noise.any():
        return _without_noise(f)
    if f.mean.shape[1] == 1:
        return concatenate(
            [_duel(f.rows(i), f.mean[i, 0], f.var[i, 0], choice.noise, choice) for i in _split(f)]
        )
    order = f.log_p.argsort(dim=1, descending=True, stable=True)
    kept = f.log_p.gather(1, order).exp().cumsum(1)
    count = ((kept < 1 - DROPPED).sum(1) + 1).clamp(2, order.shape[1])  # contenders of each row
    result = Information(*torch.empty(2, len(order), dtype=f.mean.dtype))
    for K in sorted(set(count.tolist())):
        rows = torch.nonzero(count == K)[:, 0]
        some = _integrate_contenders(f.rows(rows), order[rows], K, choice)
        for whole, part in zip(result, some, strict=True):
            whole[rows] = part
    return result


def _split(f: Latent) -> Iterator[Tensor]:
    """Yield rows in pieces, for the one-dimensional grid."""
    size = max(1, BYTES // (8 * 2 * len(SPREAD) * ORDER * 48))
    yield from torch.split(torch.arange(len(f.mean)), size)


def _integrate_contenders(f: Latent, order: Tensor, K: int, choice: Choice) -> Information:
    """Integrate rows with K contenders each; latent values are ordered by probability."""
    f = Latent(f.mean.gather(1, order), f.var.gather(1, order), f.log_p.gather(1, order), f.epsilon)
    if K == 2:
        mean, var = f.mean[:, 0] - f.mean[:, 1], f.var[:, 0] + f.var[:, 1]
        noise = choice.noise[order[:, :2]].sum(1)
        return concatenate([_duel(f.rows(i), mean[i], var[i], noise[i], choice) for i in _split(f)])
    z = _sobol(K).to(f.mean.dtype)
    points = max(1, min(len(z), BYTES // (4 * K * choice.terms)))
    size = max(1, BYTES // (4 * K * choice.terms * points))
    rows = torch.split(torch.arange(len(order)), size)
    return concatenate([_average(f.rows(i), order[i, :K], torch.split(z, points), choice) for i in rows])


def _sobol(K: int) -> Tensor:
    """Return the same normal points, [POINTS K] or [4·POINTS K], at every call."""
    engine = torch.quasirandom.SobolEngine(K, scramble=True, seed=0)  # type: ignore[no-untyped-call]
    uniform: Tensor = engine.draw(POINTS if K <= MANY else 4 * POINTS, dtype=torch.float64)
    return torch.special.ndtri(uniform.clamp(1e-12, 1 - 1e-12))


def _average(f: Latent, chosen: Tensor, points: tuple[Tensor, ...], choice: Choice) -> Information:
    K = chosen.shape[1]
    mean, sd = f.mean[:, :K, None], f.var[:, :K, None].sqrt()
    parts = [_nats(choice.among(mean + sd * z.mT, chosen), f) for z in points]
    count = sum(map(len, points))
    return Information(*(sum(p.sum(1) for p in column) / count for column in zip(*parts, strict=True)))


def _duel(f: Latent, mean: Tensor, var: Tensor, noise: Tensor, choice: Choice) -> Information:
    """Integrate rows with two contenders, or one latent function: only d = f_a − f_b matters."""
    sign = 1.0
    if f.mean.shape[1] == 1:  # d > 0 favours the second class
        noise, sign = noise.expand_as(mean), -1.0
    width = choice.width(noise)
    sd = torch.maximum(var.sqrt(), 1e-8 * width)
    edges = bumps(torch.stack([mean, 0 * mean], -1), torch.stack([sd, width], -1))
    d, log_weight = piecewise_legendre(edges)
    weight = (log_normal_pdf((d - mean[:, None]) / sd[:, None]) + log_weight).exp() / sd[:, None]
    first = sign * d
    each = _nats(torch.stack([choice.duel(first, noise), choice.duel(-first, noise)], 1), f)
    return Information(*((weight * value).sum(1) for value in each))


def _nats(p: Tensor, f: Latent) -> Information:
    """Return the entropy of each p(y|f) and its divergence from p(y): [n K S] contenders, in f's order → [n S].

    With random labels every contender has (1−ε) p + ε/C, and every other class ε/C.
    """
    C, K, eps = f.log_p.shape[1], p.shape[1], f.epsilon
    log_mean = f.log_mean()
    floor = torch.tensor(eps / C, dtype=p.dtype)
    p = (1 - eps) * p + floor
    negative = torch.special.xlogy(p, p).sum(1) + (C - K) * torch.special.xlogy(floor, floor)
    cross = (p * log_mean[:, :K, None]).sum(1)
    if eps:
        cross = cross + (floor * log_mean[:, K:]).sum(1)[:, None]
    return Information(-negative, (negative - cross).clamp_min(0))


def _without_noise(f: Latent) -> Information:
    """Handle a choice without noise: p(y|f) is one class, mixed with ε/C of each, so its entropy does not depend on f."""
    C, eps = f.log_p.shape[1], f.epsilon
    sure = torch.full((C,), eps / C, dtype=f.mean.dtype)
    sure[0] += 1 - eps
    noise = -torch.special.xlogy(sure, sure).sum().expand(len(f.mean))
    log_mean = f.log_mean()
    return Information(noise.clone(), (-(log_mean.exp() * log_mean).sum(1) - noise).clamp_min(0))
