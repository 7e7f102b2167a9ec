"""Probability that each of C independent normals is the largest, by the trapezoidal rule, in NumPy and torch. [METHOD 8]

The integrand of every class is analytic and falls off at least as fast as a normal. Then the error of the trapezoidal rule falls as
exp(−c/h²) in its step h, so that a few dozen nodes are enough if the widths of a row's classes do not differ too much. With more
than CROWD classes the steps grow on the right. This module does not load torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from cavity.common.namespaces import NUMPY, SQRT_2_OVER_PI, SQRT_HALF, Array, namespace

DROP = 26.0  # an integrand ends where its logarithm has fallen by this
STEP = 0.8  # of the rule, in standard deviations of the sharpest integrand
MOST = 512  # nodes; rows that need more are left to grids that adapt to each class
CROWD = 16  # classes above which the product falls much faster to the left than the leader's Φ alone
NEARER_SHARES = (0.6, 0.45)  # of the way from b to the lower end: a crowd's integrands may end there
# a crowd's steps grow threefold, within BEND steps of the point AFTER steps right of b
GROWTH, BEND, AFTER = 3.0, 6.0, 3.0
MEAN_SLOPE, SLOPE_SPREAD = 0.5 * (GROWTH + 1), 0.5 * (GROWTH - 1)  # of the map to nodes whose steps grow
WIDE = 128  # panels of a crowd above which its span is scanned
SCANNED, SCANS = 12, 2  # points of a scan, and scans
LEAST = 1e-280  # a smaller probability is not accurate: sums are in linear scale
CEILING = 26.0  # of |u|: exp(−u²) is not 0, and erfcx(−u) is finite
FAR = -50.0  # left of it β(β + z) cancels; it is 1 to 4e-4
BYTES = 4 << 20  # of one array over a piece's nodes on the CPU: it stays in the cache
GPU_BYTES = 256 << 20
SQRT_2PI = math.sqrt(2 * math.pi)

# √(2π) φ/Φ [n C Q] and Π_c Φ [n Q] at nodes
Evaluate = Callable[[Array, Array, Array], tuple[Array, Array]]


class Span(NamedTuple):
    """Where the integrands of a row have their mass, each [n 1]."""

    low: Array
    high: Array
    panels: Array  # number of panels of the trapezoidal rule
    best: Array  # b, the largest mean
    step: Array  # of the rule, or left of b if steps grow

    def at(self, place: Array) -> Span:
        return Span(*(t[place] for t in self))


def most_change(C: int) -> float:
    """Return by how much a row may change without every other node: with many classes the error falls more slowly."""
    return 1e-3 if C <= CROWD else 3e-4


def log_probabilities(mean: Array, sd: Array) -> tuple[Array, Array]:
    """Return log p [n C], and which rows [n] neither the step nor half of it resolves: very uneven widths, or p < 1e-280."""
    xp = namespace(mean)
    with np.errstate(all="ignore"):  # rows whose widths are 0 or not finite are left
        span = find_span(mean, sd)
        log_p, left = 0 * mean, mean[:, 0] == mean[:, 0]
        for finer in (1, 2):
            count = xp.ceil(0.25 * finer * span.panels[:, 0])
            for quarter in set(count.tolist()):
                if 0 < 4 * quarter <= MOST:  # not if it is not a number
                    _fill(
                        log_p, left, mean, sd, span, xp.find((count == quarter) & left), 4 * int(quarter) + 1
                    )
            if not left.any():
                break
    return log_p, left


def find_span(mean: Array, sd: Array) -> Span:
    r"""Bound where each integrand g_k(f) = N(f; m_k, v_k) Π_{c≠k} Φ((f − m_c)/√v_c) exceeds exp(−DROP) of its largest value.

    Let b be the largest mean, of class l, and γ_k = b − m_k. Since g_k has at least the value g_k(b), with Φ ≤ 1 on the right and
    log Φ(z) ≤ −z²/2 on the left,

        f ≤ m_k + √(γ_k² + v_k D)      f ≥ b − d_k − √(d_k² + D v_k v_l/(v_k + v_l)),    d_k = γ_k v_l/(v_k + v_l)
        D = 2 (DROP − Σ_c log Φ(γ_c/√v_c))

    b − d_k is near the mode. The step follows the curvature of the integrands there, Σ_c β(β + z)/v_c plus what is left of 1/v_k.
    """
    xp, var = namespace(mean), sd * sd
    best = xp.max(mean)
    gap = best - mean
    leads = 1.0 * (gap == 0)
    best_var = xp.max(var * leads)
    log_at_best = xp.log_ndtr(gap / sd)
    drop = 2 * (DROP - xp.sum(log_at_best))
    high = xp.max(mean + (gap * gap + var * drop) ** 0.5)
    share = best_var / (var + best_var)
    width2, back = var * (share + 0.5 * leads), gap * share  # all of its variance for the leader
    mode = best - back
    low = xp.min(mode - (back * back + width2 * drop) ** 0.5)
    step = _find_step((xp.min(mode - width2**0.5) - mean) / sd, var)
    if mean.shape[-1] <= CROWD:
        return Span(low, high, (high - low) / step, best, step)
    low = _raise_low(low, mean, sd, best, log_at_best)
    return _narrow(_count_panels(Span(low, high, low, best, step)), mean, sd)


def _count_panels(span: Span) -> Span:
    """Return a crowd's span with the number of its panels."""
    return span._replace(panels=_find_end(span, span.high) - _find_end(span, span.low))


def _narrow(span: Span, mean: Array, sd: Array) -> Span:
    """Return a crowd's spans; scan those of more than WIDE panels: with hundreds of classes the bounds are far from the mass."""
    wide = namespace(mean).find(span.panels[:, 0] > WIDE)
    for some in _split(wide, BYTES // (8 * mean.shape[1] * SCANNED)):
        for whole, part in zip(span, _scan(span.at(some), mean[some], sd[some]), strict=True):
            whole[some] = part
    return span


def _split(place: Array, size: int) -> Iterator[Array]:
    size = max(1, size)
    return (place[start : start + size] for start in range(0, len(place), size))


def _scan(span: Span, mean: Array, sd: Array) -> Span:
    """Evaluate the log-concave integrands at a few points, and keep what lies between those that fell by DROP."""
    xp, (low, high) = namespace(mean), span[:2]
    points = xp.arange(SCANNED, mean)
    for _ in range(SCANS):
        f = low + (high - low) * (points / (SCANNED - 1))
        z = (f[..., None] - mean[:, None]) / sd[:, None]  # [n SCANNED C]
        log_at = xp.log_ndtr(z)
        log_g = xp.sum(log_at) - log_at - 0.5 * z * z
        mode = log_g.argmax(1)  # [n C]
        alive = (log_g > xp.look_up(log_g, mode[:, None]) - DROP).any(-1)
        first = xp.min(xp.where(alive, points, 1.0 * SCANNED))
        last = xp.max(xp.where(alive, points, 0.0))
        at = xp.as_index(xp.concat([first - 1, last + 1, xp.min(1.0 * mode) - 1]))
        ends = xp.look_up(f, xp.clip(at, 0, SCANNED - 1))
        low, high, before = ends[:, :1], ends[:, 1:2], ends[:, 2:]
    step = _find_step((before - mean) / sd, sd * sd)
    return _count_panels(span._replace(low=low, high=high, step=step))


def _find_step(z: Array, var: Array) -> Array:
    """Return the step [n 1] for the largest curvature of the integrands' logarithms at a point, where z = (f − m)/√v, [n C]."""
    xp, z = namespace(z), namespace(z).maximum(z, FAR)
    beta = SQRT_2_OVER_PI / xp.erfcx(-SQRT_HALF * z)
    precision = 1 / var
    bend = beta * (beta + z) * precision
    return STEP / (xp.sum(bend) + xp.max(precision - bend)) ** 0.5


def _find_end(span: Span, f: Array) -> Array:
    r"""Return t at a point f of a crowd's span, [n 1].

        f(t) = b + step · (AFTER + MEAN_SLOPE · t + SLOPE_SPREAD · √(t² + BEND²))

    Steps grow from MEAN_SLOPE − SLOPE_SPREAD = 1 on the left to MEAN_SLOPE + SLOPE_SPREAD = GROWTH on the right: the product of
    many Φ makes integrands sharp, and on the right it is near 1. The map is analytic, so that the error still falls as fast.
    """
    x = (f - span.best) / span.step - AFTER
    return (MEAN_SLOPE * x - SLOPE_SPREAD * (x * x + GROWTH * BEND**2) ** 0.5) / GROWTH


def place_nodes(span: Span, nodes: int, crowd: bool) -> tuple[Array, Array]:
    """Return nodes f [n Q] and their weights, [n 1] or [n Q]: equal steps, or steps that grow on the right."""
    steps = namespace(span.low).arange(nodes, span.low)
    if not crowd:
        h = (span.high - span.low) / (nodes - 1)
        return span.low + h * steps, h
    first = _find_end(span, span.low)
    dt = (_find_end(span, span.high) - first) / (nodes - 1)
    t = first + dt * steps
    root = (t * t + BEND**2) ** 0.5
    f = span.best + span.step * (AFTER + MEAN_SLOPE * t + SLOPE_SPREAD * root)
    return f, span.step * dt * (MEAN_SLOPE + SLOPE_SPREAD * t / root)


def _raise_low(low: Array, mean: Array, sd: Array, best: Array, log_at_best: Array) -> Array:
    """Return a point nearer to b where every log-concave integrand has fallen by DROP, if one of those tried is, else `low`."""
    xp, z = namespace(mean), (best - mean) / sd
    at_best = xp.sum(log_at_best) - log_at_best - 0.5 * z * z
    nearest = low
    for share in NEARER_SHARES:
        point = best + share * (low - best)
        z = (point - mean) / sd
        log_at = xp.log_ndtr(z)
        fallen = xp.max(xp.sum(log_at) - log_at - 0.5 * z * z - at_best) < -DROP
        nearest = xp.where(fallen, point, nearest)
    return nearest


def _fill(log_p: Array, left: Array, mean: Array, sd: Array, span: Span, place: Array, nodes: int) -> None:
    """Write the rows at `place`, and mark those that are resolved."""
    xp, C = namespace(mean), mean.shape[1]
    on_gpu = xp is not NUMPY and mean.is_cuda
    size = max(1, (GPU_BYTES if on_gpu else BYTES) // (8 * C * nodes))
    evaluate: Evaluate = by_erfcx
    if xp is not NUMPY and not on_gpu:
        from cavity.likelihoods.quadrature.cdf_table import make_evaluator

        evaluate = make_evaluator(min(size, len(place)) * nodes * C)
    for some in _split(place, size):
        p, change = integrate(mean[some], sd[some], *place_nodes(span.at(some), nodes, C > CROWD), evaluate)
        log_p[some] = xp.log(p)
        left[some] = ~((change < most_change(C)) & (p > LEAST)).all(1)


def integrate(mean: Array, sd: Array, f: Array, weight: Array, evaluate: Evaluate) -> tuple[Array, Array]:
    r"""Return p_k = (1/√v_k) Σ_q w_q φ(z_qk)/Φ(z_qk) Π_c Φ(z_qc) and its relative change without every other node, each [n C]."""
    rate = 1 / sd
    ratio, product = evaluate(-mean * rate, rate, f)
    ratio *= (weight * product)[:, None]
    total, half = ratio.sum(-1), ratio[..., ::2].sum(-1)
    return total * (rate / SQRT_2PI), abs(2 * half / total - 1)


def by_erfcx(shift: Array, rate: Array, f: Array) -> tuple[Array, Array]:
    r"""Return √(2π) φ/Φ and Π_c Φ at z = shift + rate · f. With u = −z/√2,

    Φ(z) = ½ exp(−u²) erfcx(u)        √(2π) φ(z)/Φ(z) = 2/erfcx(u)
    """
    xp = namespace(f)
    u = (-SQRT_HALF * rate)[..., None] * f[:, None]
    u += (-SQRT_HALF * shift)[..., None]
    u = xp.maximum(u, -CEILING)
    E = xp.erfcx(u)
    E *= 0.5
    u *= -u
    cdf = xp.exp_(u)
    cdf *= E
    return 1 / E, cdf.prod(1)
