"""Probability that a normal exceeds its rivals, with derivatives, one class per row.

See `largest`: the integrand is evaluated around its own mode, on nodes that resolve any
widths.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

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
    sum_halves,
)

if TYPE_CHECKING:
    from torch import Tensor


DROP = 26.0  # g_k ends where its logarithm has fallen by this
OWN_GROWTH = 0.125  # of the step between nodes, per distance: see `find_length`
OWN_NODES = (40, 96)  # nodes of one class, in turn
CAREFUL_NODES = 256
# largest change of an integral, relative to its size, if every other node is left out
MOST_OWN_CHANGE = 1e-5
LONGEST_STEP = 1.0  # in units of the scale: longer ones may miss a rival's step
NEWTON = 20  # steps to the mode
END_STEPS = 5  # steps to the lower end
SQRT_2PI = math.sqrt(2 * math.pi)
LOG_SQRT_2PI = math.log(SQRT_2PI)


class Win(NamedTuple):
    """S = P(own > every rival): log S and the ratios S'/S, S''/S in each mean."""

    log_value: Array  # [B]
    first: Array  # [B 1+R], own first
    second: Array  # [B 1+R]


def bound_bend(z: Array) -> Array:
    """Return a bound of −(log Φ)''.

    It is at most 1 on the left, and falls about as a normal on the right.
    """
    xp = namespace(z)
    right = xp.maximum(z, 0.0)
    return xp.exp(-0.5 * right * right)


class Integrals(NamedTuple):
    """log S, and means under the normalised integrand; see `win`."""

    value: Array  # [B]
    rate: Array  # [B R], ⟨β⟩
    pull: Array  # [B R], ⟨zβ⟩
    settled: Array  # [B], whether these integrals are resolved


class Point(NamedTuple):
    """log g at a point, its slope and −(log g)'', each [B 1]."""

    value: Array
    slope: Array
    bend: Array


class Rivals(NamedTuple):
    """log g(x) = −x²/2 + Σ_c log Φ((x − μ_c)/s_c), whose −(log g)'' ≥ 1 falls with x.

    x is in units of the own normal, with its mean at 0.
    """

    mean: Array  # [B R]
    rate: Array  # [B R], 1/s

    def rows(self, index: Array | slice) -> Rivals:
        return Rivals(self.mean[index], self.rate[index])

    def at(self, x: Array) -> Point:
        """Evaluate at x, [B 1]."""
        xp = namespace(x)
        z = (x - self.mean) * self.rate
        ratio, total = by_erfcx(z, 0 * z, x)
        beta = ratio[..., 0] / SQRT_2PI
        # β(β + z) cancels on the far left
        bend = xp.where(z < -1e4, 1.0, beta * (beta + z)) * self.rate * self.rate
        slope = xp.sum(beta * self.rate) - x
        return Point(-total - 0.5 * x * x, slope, xp.sum(bend) + 1)

    def find_span(self, careful: bool) -> tuple[Span, Array]:
        r"""Return where g > exp(−DROP) g(x₀), and log g(x₀).

        x₀ is left of the mode, where −z balances x for one rival. With γ and κ the
        slope and the bend at x₀, −z²/2 ≥ log Φ and −x²/2 ≥ log g,

            x ≥ x₀ − (√(γ² + 2κ DROP) − γ)/κ        x ≥ μ_c − s_c √D
            x ≤ √D,    D = 2 (DROP − log g(x₀))

        `careful` finds mode and lower end by Newton's steps, which never overshoot: the
        slope is convex and falls.
        """
        xp = namespace(self.mean)
        curve = self.rate * self.rate
        x = xp.maximum(xp.max(self.mean * curve / (1 + curve)), 0.0)
        point = self.at(x)
        for _ in range(NEWTON if careful else 0):
            x = x + point.slope / point.bend
            point = self.at(x)
        top, slope, bend = point
        reach = (2 * (DROP - top)) ** 0.5
        high = xp.minimum(x + slope + (slope * slope + 2 * DROP) ** 0.5, reach)
        low = x - ((slope * slope + 2 * DROP * bend) ** 0.5 - slope) / bend
        low = xp.maximum(low, xp.max(self.mean - reach / self.rate))
        for _ in range(END_STEPS if careful else 0):
            point = self.at(low)
            low = low + xp.maximum(top - DROP - point.value, 0.0) / point.slope
        bend = bound_bend((low - self.mean) * self.rate) * curve
        return Span(low, high, (xp.sum(bend) + 1) ** -0.5), top

    def integrate(self, nodes: int, evaluate: Evaluate, careful: bool) -> Integrals:
        """Return the integrals of each row."""
        xp = namespace(self.mean)
        span, top = self.find_span(careful)
        length = find_length(span, OWN_GROWTH)
        d, weight = place_nodes(span, length, nodes, OWN_GROWTH)
        x = span.low + d
        away = self.mean - span.low
        shift = -away * self.rate
        ratio, total = evaluate(shift, self.rate, d)
        weight *= xp.exp(-top - 0.5 * x * x - total)
        norm = SQRT_2PI * xp.sum(weight)
        ratio *= weight[:, None]
        rates = sum_halves(ratio)
        ratio *= d[:, None]
        pulls = (sum_halves(ratio) - away[..., None] * rates) * self.rate[..., None]
        even = xp.concat([rates[..., 0], pulls[..., 0]])  # [B 2R]
        odd = xp.concat([rates[..., 1], pulls[..., 1]])
        whole = even + odd
        change = even - odd
        # the second derivative in the mean of a needle is rate² times a small pull
        change *= xp.concat([0 * self.rate + 1, xp.maximum(self.rate, 1.0)])
        settled = (abs(change) < MOST_OWN_CHANGE * (norm + abs(whole))).all(1)
        settled &= ((length < LONGEST_STEP * nodes) & (shift > LOW)).all(1)
        value = xp.log(norm)[:, 0] + (top[:, 0] - 2 * LOG_SQRT_2PI)
        found = whole / norm
        R = self.mean.shape[1]
        return Integrals(value, found[:, :R], found[:, R:], settled)


def win(mean: Tensor, var: Tensor) -> Win:
    r"""Return S = ∫ N(f; m₀, V₀) Π_c Φ((f − m_c)/√V_c) df with derivatives.

    Means and variances are [B 1+R], own first. With ⟨·⟩ under the normalised integrand,

        z = (f − m_c)/√V_c,  β = φ/Φ,  ρ = Σ_c β(z)/√V_c
        rival:  S'/S = −⟨β(z)⟩/√V_c        S''/S = −⟨z β(z)⟩/V_c
        own:    S'/S = ⟨ρ⟩                 S''/S = ⟨(f − m₀) ρ⟩/V₀

    The forms for own follow by parts from ⟨f − m₀⟩/V₀ and ⟨(f − m₀)²⟩/V₀² − 1/V₀, which
    would cancel if S is near 1. They are sums over rivals: with x = (f − m₀)/√V₀
    = μ_c + s_c z,

        √V₀⟨ρ⟩ = Σ_c ⟨β⟩/s_c        √V₀⟨xρ⟩ = Σ_c μ_c⟨β⟩/s_c + ⟨zβ⟩
    """
    import torch

    sd = var.sqrt()
    unit = sd[:, :1]
    away = (mean[:, 1:] - mean[:, :1]) / unit
    rates = unit / sd[:, 1:]
    rivals = Rivals(away.double(), rates.double())
    if mean.is_cuda:  # a recorded step cannot sort rows
        found = _refine(rivals, ())
    else:
        with np.errstate(all="ignore"):
            found = _refine(Rivals(rivals.mean.numpy(), rivals.rate.numpy()), OWN_NODES)

    value, rate, pull = (torch.as_tensor(t).to(mean.dtype) for t in found[:3])
    force = rate * rates
    turn = (away * force + pull).sum(1, keepdim=True)
    first = torch.cat([force.sum(1, keepdim=True), -rate], 1) / sd
    second = torch.cat([turn, -pull], 1) / var
    return Win(value, first, second)


def _refine(rivals: Rivals, nodes: tuple[int, ...]) -> Integrals:
    """Integrate with these numbers of nodes in turn, each time the rows that are left.

    Rows that are left at the end are integrated carefully.
    """
    n, R = rivals.mean.shape
    xp = namespace(rivals.mean)
    careful = not nodes
    if careful:
        most = CAREFUL_NODES
        evaluate: Evaluate = by_erfcx
    else:
        most = nodes[0]
        evaluate = choose_evaluator(xp)

    pieces = cut_rows(n, R * most, rivals.mean)
    parts = [rivals.rows(i).integrate(most, evaluate, careful) for i in pieces]
    found = Integrals(*map(xp.join, zip(*parts, strict=True)))
    if careful:
        return found

    left = xp.find(~found.settled)
    if len(left):
        rest = _refine(rivals.rows(left), nodes[1:])
        for column, part in zip(found, rest, strict=True):
            column[left] = part

    return found
