"""Probability that each of C independent normals is the largest, by the trapezoidal rule. [METHOD 8]

The integrand of every class is analytic and falls off at least as fast as a normal. Then the error of the trapezoidal rule falls as
exp(−c/h²) in its step h, so that a few dozen nodes are enough if the widths of a row's classes do not differ too much. With more
than CROWD classes the steps grow on the right.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cavity.numerics import SQRT_2_OVER_PI, SQRT_HALF, hazard, hazard_slope, log_ndtr
from cavity.quadrature.rule import (
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
    log_cdf = log_ndtr(gap / sd)
    drop = 2 * (DROP - log_cdf.sum(-1, keepdim=True))
    high = (mean + (gap.square() + var * drop).sqrt()).amax(-1)
    share = best_var / (var + best_var)
    width2, back = (var * share).scatter(-1, leader, best_var), gap * share
    low = (best - back - (back.square() + width2 * drop).sqrt()).amin(-1)
    if mean.shape[-1] > CROWD:
        low = _raise_low(low, mean, sd, best, log_cdf)
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
        log_cdf = log_ndtr(z)
        log_g = log_cdf.sum(-1, keepdim=True) - log_cdf - 0.5 * z.square()
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


def _place_crowd(span: Span, nodes: int) -> tuple[Tensor, Tensor]:
    """Return nodes f and their weights, [n Q]."""
    first, last = (t[:, None] for t in _find_ends(span))
    dt, step = (last - first) / (nodes - 1), span.step[:, None]
    t = first + dt * torch.arange(nodes, dtype=first.dtype, device=first.device)
    root = (t * t + BEND**2).sqrt()
    f = span.best[:, None] + step * (AFTER + MEAN_SLOPE * t + SLOPE_SPREAD * root)
    return f, step * dt * (MEAN_SLOPE + SLOPE_SPREAD * t / root)


def _raise_low(low: Tensor, mean: Tensor, sd: Tensor, best: Tensor, log_cdf: Tensor) -> Tensor:
    """Return a point nearer to b at which every integrand has fallen by DROP since b, if one of those tried is, else `low`.

    The integrands are log-concave, so they are smaller still on the left of it. `log_cdf`: log Φ at b.
    """
    at_best = log_cdf.sum(-1, keepdim=True) - log_cdf - 0.5 * ((best - mean) / sd).square()
    nearest = low
    for share in NEARER_SHARES:
        point = torch.lerp(best[:, 0], low, share)
        z = (point[:, None] - mean) / sd
        log_cdf = log_ndtr(z)
        fallen = (log_cdf.sum(-1, keepdim=True) - log_cdf - 0.5 * z.square() - at_best).amax(-1) < -DROP
        nearest = torch.where(fallen, point, nearest)
    return nearest


def _fill(
    log_p: Tensor, left: Tensor, mean: Tensor, sd: Tensor, span: Span, place: Tensor, nodes: int
) -> None:
    """Write the rows at `place`, and mark those that are resolved."""
    size = max(1, (GPU_BYTES if mean.is_cuda else BYTES) // (8 * mean.shape[1] * nodes))
    most = most_change(mean.shape[1])
    integrate = _integrate if mean.shape[1] <= CROWD else _integrate_crowd
    for some in torch.split(place, size):
        p, change = integrate(mean[some], sd[some], span.at(some), nodes)
        log_p[some] = p.log()
        left[some] = ~((change.amax(-1) < most) & (p.amin(-1) > LEAST))


def _integrate(mean: Tensor, sd: Tensor, span: Span, nodes: int) -> tuple[Tensor, Tensor]:
    r"""Return p_k = (h/√v_k) Σ_q β(z_qk) Π_c Φ(z_qc) and its relative change if every other node is left out, each [n C].

    With u = −z/√2:  β(z) = √(2/π) · ½ exp(−u²)/Φ(z).
    """
    h = ((span.high - span.low) / (nodes - 1))[:, None]
    rate = -SQRT_HALF / sd
    first, step = (span.low[:, None] - mean) * rate, h * rate
    steps = torch.arange(nodes, dtype=mean.dtype, device=mean.device)
    u = torch.addcmul(first[..., None], step[..., None], steps)  # [n C Q]
    terms = _terms(u)
    total, half = terms.sum(-1), terms[..., ::2].sum(-1)
    return total * (h * SQRT_2_OVER_PI / sd), (2 * half / total - 1).abs()


def _integrate_crowd(mean: Tensor, sd: Tensor, span: Span, nodes: int) -> tuple[Tensor, Tensor]:
    """Return the same with steps that grow on the right."""
    f, weight = _place_crowd(span, nodes)
    u = (f[:, None] - mean[..., None]) * (-SQRT_HALF / sd)[..., None]
    every = weight.clone()
    every[:, 1::2] = 0
    total, half = torch.bmm(_terms(u), torch.stack([weight, 2 * every], -1)).unbind(-1)
    return total * (SQRT_2_OVER_PI / sd), (half / total - 1).abs()


def _terms(u: Tensor) -> Tensor:
    r"""Return ½ exp(−u²)/Φ_k Π_c Φ_c at each node, [n C Q]; overwrites u.

        Φ(z) = ½ exp(−u²) erfcx(u)  for u > 0,  1 − ½ exp(−u²) erfcx(−u)  otherwise

    erfcx takes half as long again for negative arguments. Where u > CEILING, the product is below 1e-290.
    """
    below = u.clamp_(max=CEILING) > 0
    tail = torch.special.erfcx(u.abs())
    density = u.square_().neg_().exp_().mul_(0.5)
    tail.mul_(density)
    cdf = torch.where(below, tail, 1 - tail)
    return density.div_(cdf).mul_(cdf.prod(1, keepdim=True))
