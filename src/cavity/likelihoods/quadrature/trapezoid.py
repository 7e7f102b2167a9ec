"""Probability that each of C independent normals is the largest, by the trapezoidal rule. [METHOD 8]

The integrand of every class is analytic and falls off at least as fast as a normal. Then the error of the trapezoidal rule falls as
exp(−c/h²) in its step h, so that a few dozen nodes are enough if the widths of a row's classes do not differ too much. With more
than CROWD classes the steps grow on the right.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from cavity.likelihoods.normal_tails import SQRT_HALF, hazard, hazard_slope, log_ndtr
from cavity.likelihoods.quadrature.cdf_table import CELLS, Workspace, log_cdf
from cavity.likelihoods.quadrature.trapezoid_constants import (
    AFTER,
    BEND,
    CEILING,
    CROWD,
    DROP,
    GROWTH,
    LEAST,
    MEAN_SLOPE,
    MOST,
    NEARER_SHARES,
    SCANNED,
    SCANS,
    SLOPE_SPREAD,
    STEP,
    WIDE,
    most_change,
)

Evaluate = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
SQRT_2PI = math.sqrt(2 * math.pi)

BYTES = 4 << 20  # of one array over a piece's nodes on the CPU: it stays in the cache
GPU_BYTES = 256 << 20


class Span(NamedTuple):
    """Where the integrands of a row have their mass, each [n]."""

    low: Tensor
    high: Tensor
    panels: Tensor  # number of panels of the trapezoidal rule
    best: Tensor  # b, the largest mean
    step: Tensor  # of the rule, or left of b if steps grow

    def at(self, place: Tensor) -> Span:
        """Return some of the rows."""
        return Span(*(t[place] for t in self))


def log_probabilities(mean: Tensor, sd: Tensor) -> tuple[Tensor, Tensor]:
    """Return log p [n C], and which rows [n] the rule has not resolved: very uneven widths, or p < 1e-280.

    A row whose sum over every other node differs too much is computed again with half the step.
    """
    log_p, left = torch.empty_like(mean), torch.ones_like(mean[:, 0], dtype=torch.bool)
    span = find_span(mean, sd)
    for finer in (1, 2):
        count = (0.25 * finer * span.panels).ceil()
        count = torch.where(left & (4 * count <= MOST), count, 0.0)  # 0 also if it is not a number
        for quarter in sorted(set(count.tolist()) - {0.0}):
            _fill(log_p, left, mean, sd, span, (count == quarter).nonzero()[:, 0], 4 * int(quarter) + 1)
        if not bool(left.any()):
            break
    return log_p, left


def find_span(mean: Tensor, sd: Tensor) -> Span:
    r"""Bound where each integrand g_k(f) = N(f; m_k, v_k) Π_{c≠k} Φ((f − m_c)/√v_c) exceeds exp(−DROP) of its largest value.

    Let b be the largest mean, of class l, and γ_k = b − m_k. Since g_k has at least the value g_k(b), with Φ ≤ 1 on the right and
    log Φ(z) ≤ −z²/2 on the left,

        f ≤ m_k + √(γ_k² + v_k D)      f ≥ b − d_k − √(d_k² + D v_k v_l/(v_k + v_l)),    d_k = γ_k v_l/(v_k + v_l)
        D = 2 (DROP − Σ_c log Φ(γ_c/√v_c))

    b − d_k is near the mode. The step follows the curvature of the integrands there, Σ_c β(β + z)/v_c plus what is left of 1/v_k.
    """
    var = sd.square()
    best, leader = mean.max(-1, keepdim=True)
    gap, best_var = best - mean, var.gather(-1, leader)
    log_at_best = log_cdf(gap / sd)
    drop = 2 * (DROP - log_at_best.sum(-1, keepdim=True))
    high = (mean + (gap.square() + var * drop).sqrt()).amax(-1)
    share = best_var / (var + best_var)
    width2, back = (var * share).scatter(-1, leader, best_var), gap * share
    low = (best - back - (back.square() + width2 * drop).sqrt()).amin(-1)
    if mean.shape[-1] > CROWD:
        low = _raise_low(low, mean, sd, best, log_at_best)
    precision = find_precision(((best - back - width2.sqrt()).amin(-1, keepdim=True) - mean) / sd, var)
    span = Span(low, high, (high - low) * precision.sqrt() / STEP, best[:, 0], STEP * precision.rsqrt())
    if mean.shape[-1] > CROWD:
        span = narrow(_count_panels(span), mean, sd)
    return span


def _count_panels(span: Span) -> Span:
    """Return a crowd's span with the number of its panels."""
    first, last = _find_ends(span)
    return span._replace(panels=last - first)


def narrow(span: Span, mean: Tensor, sd: Tensor) -> Span:
    """Return a crowd's spans; scan those of more than WIDE panels: with hundreds of classes the bounds are far from the mass."""
    wide = (span.panels > WIDE).nonzero()[:, 0]
    if not len(wide):
        return span
    parts = []
    for some in torch.split(wide, max(1, BYTES // (8 * mean.shape[1] * SCANNED))):
        parts.append(_scan(span.at(some), mean[some], sd[some]))
    found = Span(*(torch.cat(column) for column in zip(*parts, strict=True)))
    return Span(*(old.index_copy(0, wide, new) for old, new in zip(span, found, strict=True)))


def _scan(span: Span, mean: Tensor, sd: Tensor) -> Span:
    """Evaluate all integrands at a few points, and keep what lies between those that fell by DROP.

    The integrands are log-concave: beyond a point where one has fallen by DROP since another point, it is smaller still. The step
    follows the curvature left of the first mode.
    """
    low, high = span.low, span.high
    share = torch.linspace(0, 1, SCANNED, dtype=low.dtype, device=low.device)
    for _ in range(SCANS):
        f = torch.lerp(low[:, None], high[:, None], share)
        z = (f[..., None] - mean[:, None]) / sd[:, None]  # [n SCANNED C]
        log_at = log_ndtr(z)
        log_g = log_at.sum(-1, keepdim=True) - log_at - 0.5 * z.square()
        alive = (log_g > log_g.amax(1, keepdim=True) - DROP).any(-1).int()
        first, last = alive.argmax(1), SCANNED - 1 - alive.flip(1).argmax(1)
        left = log_g.argmax(1).amin(1) - 1
        at = torch.stack([first - 1, last + 1, left], 1).clamp(0, SCANNED - 1)
        low, high, before = f.gather(1, at).unbind(1)
    step = STEP * find_precision((before[:, None] - mean) / sd, sd.square()).rsqrt()
    return _count_panels(span._replace(low=low, high=high, step=step))


def find_precision(z: Tensor, var: Tensor) -> Tensor:
    """Return the largest curvature of the integrands' logarithms at a point, [n], given there z = (f − m)/√v, [n C]."""
    bend = hazard_slope(z, hazard(z))
    return (bend / var).sum(-1) + ((1 - bend) / var).amax(-1)


def _find_ends(span: Span) -> tuple[Tensor, Tensor]:
    r"""Return t at both ends of a crowd's span, [n].

        f(t) = b + step · (AFTER + MEAN_SLOPE · t + SLOPE_SPREAD · √(t² + BEND²))

    Steps grow from MEAN_SLOPE − SLOPE_SPREAD = 1 on the left to MEAN_SLOPE + SLOPE_SPREAD = GROWTH on the right: the product of
    many Φ makes integrands sharp, and on the right it is near 1. The map is analytic, so that the error still falls as fast.
    """
    x = (torch.stack([span.low, span.high]) - span.best) / span.step - AFTER
    first, last = (MEAN_SLOPE * x - SLOPE_SPREAD * (x * x + GROWTH * BEND**2).sqrt()) / GROWTH
    return first, last


def _place(span: Span, nodes: int) -> tuple[Tensor, Tensor]:
    """Return nodes f and their weights, [n Q], with equal steps."""
    h = ((span.high - span.low) / (nodes - 1))[:, None]
    steps = torch.arange(nodes, dtype=h.dtype, device=h.device)
    return torch.addcmul(span.low[:, None], h, steps), h.expand(-1, nodes)


def _place_crowd(span: Span, nodes: int) -> tuple[Tensor, Tensor]:
    """Return the same with steps that grow on the right."""
    first, last = (t[:, None] for t in _find_ends(span))
    dt, step = (last - first) / (nodes - 1), span.step[:, None]
    t = first + dt * torch.arange(nodes, dtype=first.dtype, device=first.device)
    root = (t * t + BEND**2).sqrt()
    f = span.best[:, None] + step * (AFTER + MEAN_SLOPE * t + SLOPE_SPREAD * root)
    return f, step * dt * (MEAN_SLOPE + SLOPE_SPREAD * t / root)


def _raise_low(low: Tensor, mean: Tensor, sd: Tensor, best: Tensor, log_at_best: Tensor) -> Tensor:
    """Return a point nearer to b at which every integrand has fallen by DROP since b, if one of those tried is, else `low`.

    The integrands are log-concave, so they are smaller still on the left of it. `log_at_best`: log Φ at b.
    """
    at_best = log_at_best.sum(-1, keepdim=True) - log_at_best - 0.5 * ((best - mean) / sd).square()
    nearest = low
    for share in NEARER_SHARES:
        point = torch.lerp(best[:, 0], low, share)
        z = (point[:, None] - mean) / sd
        log_at = log_cdf(z)
        fallen = (log_at.sum(-1, keepdim=True) - log_at - 0.5 * z.square() - at_best).amax(-1) < -DROP
        nearest = torch.where(fallen, point, nearest)
    return nearest


def _fill(
    log_p: Tensor, left: Tensor, mean: Tensor, sd: Tensor, span: Span, place: Tensor, nodes: int
) -> None:
    """Write the rows at `place`, and mark those that are resolved."""
    C = mean.shape[1]
    size = max(1, (GPU_BYTES if mean.is_cuda else BYTES) // (8 * C * nodes))
    f, weight = (_place if C <= CROWD else _place_crowd)(span.at(place), nodes)
    evaluate = _by_erfcx if mean.is_cuda else _by_table(min(size, len(place)) * nodes * C)
    for some, nodes_of, weight_of in zip(*(torch.split(t, size) for t in (place, f, weight)), strict=True):
        p, change = _integrate(mean[some], sd[some], nodes_of, weight_of, evaluate)
        log_p[some] = p.log()
        left[some] = ~((change.amax(-1) < most_change(C)) & (p.amin(-1) > LEAST))


def _integrate(
    mean: Tensor, sd: Tensor, f: Tensor, weight: Tensor, evaluate: Evaluate
) -> tuple[Tensor, Tensor]:
    r"""Return p_k = (1/√v_k) Σ_q w_q φ(z_qk)/Φ(z_qk) Π_c Φ(z_qc) and its relative change without every other node, each [n C]."""
    rate = sd.reciprocal()
    ratio, product = evaluate(-mean * rate, rate, f)
    terms = ratio.mul_((weight * product)[:, None])
    total, half = terms.sum(-1), terms[..., ::2].sum(-1)
    return total * (rate / SQRT_2PI), (2 * half / total - 1).abs()


def _by_table(size: int) -> Evaluate:
    """Return the function that evaluates √(2π) φ/Φ [n C Q] and Π_c Φ [n Q] on a CPU, at `size` points at most at a time."""
    work = Workspace(size)

    def evaluate(shift: Tensor, rate: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        t = work.reserve((*rate.shape, f.shape[1]))  # z in cells of the table
        torch.addcmul((CELLS * shift)[..., None], (CELLS * rate)[..., None], f[:, None], out=t)
        minus_log = work.minus_log_cdf(t)
        product = minus_log.sum(1).neg_().exp_()
        return minus_log.addcmul_(t, t, value=-0.5 / CELLS**2).exp_(), product

    return evaluate


def _by_erfcx(shift: Tensor, rate: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the same on any device. With u = −z/√2,

        Φ(z) = ½ exp(−u²) erfcx(u)  for u > 0,  1 − ½ exp(−u²) erfcx(−u)  otherwise

    erfcx takes half as long again for negative arguments. Where u > CEILING, the product is below 1e-290.
    """
    u = torch.addcmul(shift[..., None], rate[..., None], f[:, None]).mul_(-SQRT_HALF).clamp_(max=CEILING)
    below = u > 0
    tail = torch.special.erfcx(u.abs())
    density = u.square_().neg_().exp_()
    tail.mul_(density).mul_(0.5)
    cdf = torch.where(below, tail, 1 - tail)
    return density.div_(cdf), cdf.prod(1)
