"""Probability that one of several independent normals is the largest.

It is the integral of predictions and of robust EP: [METHOD 4, REP; METHOD 8]

    p_k = ∫ g_k(f) df        g_k(f) = N(f; m_k, v_k) Π_{c≠k} Φ((f − m_c)/√v_c)

g_k is analytic and log-concave: the error of the trapezoidal rule falls exponentially
with its nodes. `log_probabilities` integrates all classes of a row on the same nodes,
`rivals.win` one class per row, with derivatives. Both accept a sum if leaving out every other
node hardly changes it. A g_k of very uneven widths or far in a tail fails that test. It
is integrated around its own mode, on nodes that resolve any widths.

Arrays are torch's or NumPy's; this module does not load torch.
"""

from __future__ import annotations

import math

import numpy as np

from cavity.common.namespaces import Array, namespace
from cavity.engine.likelihoods.quadrature.nodes import (
    LOW,
    Evaluate,
    Span,
    by_erfcx,
    choose_evaluator,
    cut_rows,
    find_length,
    place_nodes,
    spread_nodes,
    sum_halves,
)
from cavity.engine.likelihoods.quadrature.rivals import (
    CAREFUL_NODES,
    DROP,
    LOG_SQRT_2PI,
    SQRT_2PI,
    Rivals,
    bound_bend,
)

# The step between nodes grows by this share of the distance: see `find_length`. The
# nodes of a row grow more slowly, because some classes are in tails.
GROWTH = 0.05
STEP = 0.7  # between the nodes of a row, in units of the scale
SCANNED = 12  # nodes that find where the classes of a row have their mass
FEW = 4  # up to this number of classes, bounds are enough for that
MOST = 384  # nodes of a row
# nodes of a graph are at most this step apart, up to the largest number of them
GRAPH_STEP = 0.5
GRAPH_NODES = 320.0
GRAPH_REACH = (12.0, 8.5)  # standard deviations below and above the means
# Largest change of a probability if every other node is left out. Its error is far
# smaller.
MOST_CHANGE = 1e-4
# smallest probability that is accurate on the nodes of a row: sums are in linear scale
LEAST = 1e-280
# logarithms below which a bound must do, and above how many classes the second one
# holds: single classes then take long
FAR = -691.0
FAR_AMONG_MANY = -32.0
MANY = 200


def log_probabilities(mean: Array, sd: Array) -> Array:
    """Return log p, [n C] → [n C], not normalised: |Σ_k p_k − 1| is the error."""
    xp = namespace(mean)
    C = mean.shape[1]
    log_p = 0 * mean
    left = (mean == mean) | True  # not integrated yet, [n C]
    evaluate = choose_evaluator(xp)
    with np.errstate(all="ignore"):
        span = _find_span(mean, sd, evaluate)
        length = find_length(span, GROWTH)
        for finer in (1, 2):
            if not left.any():
                return log_p

            count = xp.ceil(length[:, 0] * (finer / (8 * STEP))) * left.any(1)
            for eighth in set(count.tolist()):
                if not 0 < 8 * eighth <= MOST:
                    continue

                nodes = 8 * int(eighth)
                rows = xp.find(count == eighth)
                for piece in cut_rows(len(rows), C * nodes, mean):
                    i = rows[piece]
                    log_p[i], left[i] = _integrate_all(
                        mean[i], sd[i], span.at(i), length[i], nodes, evaluate
                    )

        entries = xp.find(left.reshape(-1))
        if len(entries):
            _mend(log_p, mean, sd, entries)

    return log_p


def _integrate_all(
    mean: Array, sd: Array, span: Span, length: Array, nodes: int, evaluate: Evaluate
) -> tuple[Array, Array]:
    """Return log p and which of them are not resolved, each [n C]."""
    xp = namespace(mean)
    rate = 1 / sd
    d, weight = place_nodes(span, length, nodes, GROWTH)
    ratio, total = evaluate((span.low - mean) * rate, rate, d)
    ratio *= (weight * xp.exp(-total))[:, None]
    halves = sum_halves(ratio)
    even = halves[..., 0]
    odd = halves[..., 1]
    whole = even + odd
    p = whole * (rate / SQRT_2PI)
    tiny = p < LEAST  # and nothing else is wrong with the row
    settled = (abs(even - odd) < MOST_CHANGE * whole) | tiny
    return xp.log(p), tiny | ~settled.all(1)[:, None]


def _find_span(mean: Array, sd: Array, evaluate: Evaluate) -> Span:
    r"""Bound where each g_k exceeds exp(−DROP) of its largest value, then scan between.

    Let b be the largest mean, of class l, and γ_k = b − m_k. Since g_k has at least the
    value g_k(b), with Φ ≤ 1 on the right and log Φ(z) ≤ −z²/2 on the left,

        f ≤ m_k + √(γ_k² + v_k D)
        f ≥ b − d_k − √(d_k² + D v_k v_l/(v_k + v_l)),    d_k = γ_k v_l/(v_k + v_l)
        D = 2 (DROP − Σ_c log Φ(γ_c/√v_c))
    """
    xp = namespace(mean)
    var = sd * sd
    rate = 1 / sd
    best = xp.max(mean)
    gap = best - mean
    leads = 1.0 * (gap == 0)
    best_var = xp.max(var * leads)
    z = gap * rate
    # Φ(z) ≥ 1 − ½ exp(−z²/2)
    drop = 2 * (DROP - xp.sum(xp.log1p(-0.5 * xp.exp(-0.5 * z * z))))
    high = xp.max(mean + (gap * gap + var * drop) ** 0.5)
    share = best_var / (var + best_var)
    back = gap * share
    fall = var * (share + 0.5 * leads) * drop
    low = xp.min(best - back - (back * back + fall) ** 0.5)
    # further left one Φ, and so every g_k, is below LEAST
    low = xp.maximum(low, xp.max(mean + LOW * sd))
    if mean.shape[1] > FEW:
        low, high = _scan(mean, rate, low, high, evaluate)
    precision = rate * rate
    bend = bound_bend((low - mean) * rate) * precision
    return Span(low, high, (xp.sum(bend) + xp.max(precision - bend)) ** -0.5)


def _scan(
    mean: Array, rate: Array, low: Array, high: Array, evaluate: Evaluate
) -> tuple[Array, Array]:
    """Move both ends to the nodes beyond which every class has fallen by DROP."""
    xp = namespace(mean)
    intervals = SCANNED - 1
    h = (high - low) / intervals
    steps = xp.arange(SCANNED, mean)
    shift = (low - mean) * rate
    first = 0 * low
    last = 0 * low
    for i in cut_rows(len(mean), mean.shape[1] * SCANNED, mean):
        ratio, total = evaluate(shift[i], rate[i], h[i] * steps)
        ratio *= xp.exp(-total)[:, None]
        top = xp.max(ratio)
        least = xp.where(top > LEAST, math.exp(-DROP) * top, 1.0)
        alive = (ratio > least).any(1)
        first[i] = xp.min(xp.where(alive, steps, 1.0 * SCANNED))
        last[i] = xp.max(xp.where(alive, steps, 0.0))

    first = xp.clip(first - 1, 0, intervals)
    last = xp.clip(last + 1, 0, intervals)
    return low + h * first, low + h * last


def _mend(log_p: Array, mean: Array, sd: Array, entries: Array) -> None:
    """Write log p of single classes, row · C + class, each around its own mode.

    p_k is at most the probability that k beats the class that is surely highest. Where
    that bound is very small, it takes the place of p_k.
    """
    xp = namespace(mean)
    C = mean.shape[1]
    row = entries // C
    own = entries % C
    leader = (mean - 8 * sd).argmax(1)[row]
    m = mean[row, own]
    s = sd[row, own]
    duel = xp.log_ndtr((m - mean[row, leader]) / (s * s + sd[row, leader] ** 2) ** 0.5)
    log_p[row, own] = duel
    far = FAR if C <= MANY else FAR_AMONG_MANY
    near = xp.find(~(duel < far))
    for piece in cut_rows(len(near), C * CAREFUL_NODES, mean):
        i = near[piece]
        at = row[i]
        k = own[i]
        unit = s[i][:, None]
        away = (mean[at] - m[i][:, None]) / unit
        is_own = xp.arange(C, mean) == k[:, None]  # no rival of its own
        rivals = Rivals(xp.where(is_own, -1e6, away), unit / sd[at])
        log_p[at, k] = rivals.integrate(CAREFUL_NODES, by_erfcx, careful=True).value


def integrate_in_graph(mean: Array, var: Array) -> Array:
    """Return log p in any namespace, without a branch on values.

    It is right to 1e-9 where p > 1e-30; widths may differ a thousandfold. All rows of
    a call have as many nodes as the row that needs most.
    """
    xp = namespace(mean)
    sd = xp.sqrt(var)
    below, above = GRAPH_REACH
    end = mean + above * sd
    # axes from the start: onnxruntime is wrong for no rows and axes from the end
    low = xp.max(mean - below * sd, 1)
    high = xp.max(end, 1)
    inside = xp.where(end < low, 0.0, 1.0 / var)
    span = Span(low, high, 1.0 / xp.sqrt(inside.sum(1)[:, None]))
    length = find_length(span, GROWTH)
    # a length of our own: onnxruntime has no maximum of no rows
    lengths = xp.concat([length[:, 0], xp.constant((1.0,), length)])
    nodes = xp.minimum(xp.ceil(xp.max(lengths)[0,] / GRAPH_STEP), GRAPH_NODES)
    step = length * GROWTH / nodes
    d, weight = spread_nodes(span, step, xp.half_steps(nodes), GROWTH)
    z = (d[..., None] + (low - mean)[:, None]) / sd[:, None]  # [n Q C]
    log_cdf = xp.log_ndtr(z)
    log_density = z * z * -0.5 - (xp.log(sd) + LOG_SQRT_2PI)[:, None]
    log_others = log_cdf.sum(2)[..., None] - log_cdf
    return xp.logsumexp(log_density + log_others + xp.log(weight)[..., None], 1)
