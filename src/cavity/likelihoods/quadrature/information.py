"""Split a prediction's entropy into noise (aleatoric) and uncertainty about f (epistemic). [docs/decisions/0014]"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cavity.likelihoods.normal_tails import log_normal_pdf
from cavity.likelihoods.quadrature.grid import ORDER, SPREAD, bumps, piecewise_legendre
from cavity.likelihoods.quadrature.noisy_argmax import Choice, Largest
from cavity.likelihoods.quadrature.probabilities import with_random_labels

POINTS = 1024  # Sobol points for three and more contenders
MANY = 16  # contenders above which Sobol points are hardly better than random ones, and four times as many are used
DROPPED = 1e-5  # total probability of the classes that a row may ignore
BYTES = 4 << 20  # of one array over a piece's nodes


class EntropyParts(NamedTuple):
    """Entropy of the label, H(p(y)), and its parts in nats, [n]."""

    total: Tensor
    aleatoric: Tensor  # E_f H(p(y|f))
    epistemic: Tensor  # E_f KL(p(y|f) ‖ p(y)), the mutual information of y and f


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
    r"""Return the label's entropy, the part that would remain if f were known, and the part that knowing f would remove.

        total H(p(y)) = aleatoric + epistemic        p(y) = E_f p(y|f)

    holds exactly for the integrals. Both parts are averages over the same f, so that neither is a small difference of large
    numbers. One latent function or two contenders: a one-dimensional grid, near machine precision. More: Sobol points, each average
    accurate to a few 1e-3. Without noise p(y|f) is one class, and all of the entropy but that of random labels is epistemic.
    """
    log_mean, n = f.log_mean(), len(f.mean)
    total = -(log_mean.exp() * log_mean).sum(1)
    if isinstance(choice, Largest) and not choice.noise.any():
        aleatoric = _nats(f.mean.new_ones(n, 1, 1), f)[0, :, 0]
        return EntropyParts(total, aleatoric, (total - aleatoric).clamp_min(0))
    if f.mean.shape[1] == 1:  # a positive value favours the second class
        turned = f._replace(log_p=f.log_p.flip(1))
        return EntropyParts(total, *_duel(turned, f.mean[:, 0], f.var[:, 0], choice.noise.expand(n), choice))
    order = f.log_p.argsort(dim=1, descending=True, stable=True)
    kept = f.log_p.gather(1, order).exp().cumsum(1)
    count = ((kept < 1 - DROPPED).sum(1) + 1).clamp(2, order.shape[1])  # contenders of each row
    parts = torch.empty(2, n, dtype=f.mean.dtype)
    for K in sorted(set(count.tolist())):
        rows = torch.nonzero(count == K)[:, 0]
        parts[:, rows] = _integrate_contenders(f.rows(rows), order[rows], K, choice)
    return EntropyParts(total, *parts)


def _integrate_contenders(f: Latent, order: Tensor, K: int, choice: Choice) -> Tensor:
    """Return both parts [2 n] of rows with K contenders each; latent values are ordered by probability."""
    f = Latent(f.mean.gather(1, order), f.var.gather(1, order), f.log_p.gather(1, order), f.epsilon)
    if K == 2:
        mean, var = f.mean[:, 0] - f.mean[:, 1], f.var[:, 0] + f.var[:, 1]
        return _duel(f, mean, var, choice.noise[order[:, :2]].sum(1), choice)
    z = _sobol(K).to(f.mean.dtype)
    points = max(1, min(len(z), BYTES // (4 * K * choice.terms)))
    size = max(1, BYTES // (4 * K * choice.terms * points))
    parts = []
    for i in torch.split(torch.arange(len(order)), size):
        some, chosen = f.rows(i), order[i, :K]
        mean, sd = some.mean[:, :K, None], some.var[:, :K, None].sqrt()
        pieces = (_nats(choice.among(mean + sd * part.mT, chosen), some) for part in torch.split(z, points))
        parts.append(torch.stack([piece.sum(-1) for piece in pieces]).sum(0) / len(z))
    return torch.cat(parts, 1)


def _sobol(K: int) -> Tensor:
    """Return the same normal points, [POINTS K] or [4·POINTS K], at every call."""
    engine = torch.quasirandom.SobolEngine(K, scramble=True, seed=0)  # type: ignore[no-untyped-call]
    uniform: Tensor = engine.draw(POINTS if K <= MANY else 4 * POINTS, dtype=torch.float64)
    return torch.special.ndtri(uniform.clamp(1e-12, 1 - 1e-12))


def _duel(f: Latent, mean: Tensor, var: Tensor, noise: Tensor, choice: Choice) -> Tensor:
    """Return both parts [2 n] of rows with two contenders: only d = f_a − f_b matters."""
    size = max(1, BYTES // (8 * 2 * len(SPREAD) * ORDER * 48))
    parts = []
    for i in torch.split(torch.arange(len(mean)), size):
        m, s = mean[i], noise[i]
        width = choice.width(s)
        sd = torch.maximum(var[i].sqrt(), 1e-8 * width)
        d, log_weight = piecewise_legendre(bumps(torch.stack([m, 0 * m], -1), torch.stack([sd, width], -1)))
        weight = (log_normal_pdf((d - m[:, None]) / sd[:, None]) + log_weight).exp() / sd[:, None]
        p = torch.stack([choice.duel(d, s), choice.duel(-d, s)], 1)
        parts.append((weight * _nats(p, f.rows(i))).sum(-1))
    return torch.cat(parts, 1)


def _nats(p: Tensor, f: Latent) -> Tensor:
    """Return the entropy of each p(y|f) and its divergence from p(y): [n K S] contenders, in f's order → [2 n S].

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
    return torch.stack([-negative, (negative - cross).clamp_min(0)])
