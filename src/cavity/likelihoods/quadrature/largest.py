"""Probability that one normal is the largest of many, with its derivatives: robust EP's integral. [METHOD 4, REP]

The integrand is analytic and log-concave: 48 nodes of the trapezoidal rule around its mode integrate an ordinary row to 1e-12, with
log Φ from a table. The sum over every other node, and the width of the rivals' steps, tell how large the error is. Rows that the
rule does not resolve are left to Gauss–Legendre panels.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from cavity.common.linalg import concatenate
from cavity.likelihoods.normal_tails import LOG_SQRT_2PI, constant, hazard, log_ndtr
from cavity.likelihoods.quadrature.cdf_table import CELLS, LOW, Workspace
from cavity.likelihoods.quadrature.grid import MANY, ORDER, piecewise_legendre, thin

# breakpoints around a rival's step, in its standard deviations
STEPS = (-8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0)
INWARD = (1.0, 0.5, 0.25, 0.125, 0.0625)  # breakpoints between the mode and the ends of the integrand
DROP = 40.0  # the integrand ends where its logarithm has fallen by this
NEWTON = 20  # steps to the mode and to each end; all converge from one side
NODES = (48, 160)  # of the trapezoidal rule, and for rows that it does not resolve
BYTES = 32 << 20  # of one array over a piece's nodes
FALL = 26.0  # the same as DROP, for the trapezoidal rule
MOST_CHANGE = 1e-5  # of the integrals if every other node is left out, relative to their sizes: their error is far smaller
LOG_ERROR = -25.0  # of the rule at a rival's step
CACHE_BYTES = 1 << 20  # of one array over a piece's nodes of the rule: it stays in the cache


class Integrand(NamedTuple):
    """g(x) = −x²/2 + Σ_c log Φ((x − μ_c)/s_c), x in units of the normal, its mean at 0: log-concave, with −g'' ≥ 1."""

    mean: Tensor  # [B R], of the rivals
    rate: Tensor  # [B R], 1/s

    def z(self, x: Tensor) -> Tensor:
        """Return (x − μ_c)/s_c at points [B Q], [B Q R]."""
        return (x[..., None] - self.mean[:, None]) * self.rate[:, None]

    def log_value(self, x: Tensor) -> Tensor:
        """Return g at points [B Q]."""
        return log_ndtr(self.z(x)).sum(-1) - 0.5 * x * x

    def start(self) -> Tensor:
        """Return a point left of the mode, [B]: β(z) > −z, so the mode lies right of where each rival's −z balances x."""
        curve = self.rate.square()
        return (self.mean * curve / (1 + curve)).amax(-1).clamp_min(0)

    def derivatives(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return g' and −g'' at x, [B], accurate enough for a step."""
        z = (x[:, None] - self.mean) * self.rate
        h = hazard(z)
        bend = torch.where(z < -1e4, 1.0, h * (h + z))
        return (h * self.rate).sum(-1) - x, (bend * self.rate.square()).sum(-1) + 1

    def find_mode(self, steps: int) -> Tensor:
        """Return the point where g' = 0, [B]. g' is convex and decreasing, so Newton's steps from the left never overshoot."""
        x = self.start()
        for _ in range(steps):
            slope, bend = self.derivatives(x)
            x = x + slope / bend
        return x


class Win(NamedTuple):
    """S = P(own > every rival): log S and the ratios S'/S, S''/S in each mean."""

    log_value: Tensor  # [B]
    first: Tensor  # [B 1+R], own first
    second: Tensor  # [B 1+R]


class Integrals(NamedTuple):
    """log S without its constant, and means under the normalised integrand; see `win`."""

    value: Tensor  # [B]
    rate: Tensor  # [B R], ⟨β⟩
    pull: Tensor  # [B R], ⟨zβ⟩


def win(mean: Tensor, var: Tensor) -> Win:
    r"""Return S = ∫ N(f; m₀, V₀) Π_c Φ((f − m_c)/√V_c) df for the first column of [B 1+R]. With ⟨·⟩ under the normalised integrand,

    rival:  S'/S = −⟨β(z)⟩/√V_c        S''/S = −⟨z β(z)⟩/V_c        z = (f − m_c)/√V_c,  β = φ/Φ
    own:    S'/S = ⟨ρ⟩                 S''/S = ⟨(f − m₀) ρ⟩/V₀      ρ = Σ_c β(z)/√V_c

    The forms for own come from ⟨f − m₀⟩/V₀ and ⟨(f − m₀)²⟩/V₀² − 1/V₀ by integration by parts; those would cancel if S is near 1.
    They are sums of the rivals': with x = (f − m₀)/√V₀ = μ_c + s_c z, √V₀⟨ρ⟩ = Σ_c ⟨β⟩/s_c and √V₀⟨xρ⟩ = Σ_c μ_c⟨β⟩/s_c + ⟨zβ⟩.
    """
    sd = var.sqrt()
    unit = sd[:, :1]
    g = Integrand((mean[:, 1:] - mean[:, :1]) / unit, unit / sd[:, 1:])
    if mean.is_cuda:  # a recorded step cannot sort rows
        value, rate, pull = _by_panels(g)
    else:
        found = _refine(Integrand(g.mean.double(), g.rate.double()), NODES)
        value, rate, pull = (t.to(mean.dtype) for t in found)
    force = g.rate * rate
    own, turn = force.sum(1, keepdim=True), (g.mean * force + pull).sum(1, keepdim=True)
    first = torch.cat([own, -rate], 1) / sd
    second = torch.cat([turn, -pull], 1) / var
    return Win(value - LOG_SQRT_2PI, first, second)


def _refine(g: Integrand, nodes: tuple[int, ...]) -> Integrals:
    """Integrate by the trapezoidal rule with these numbers of nodes in turn, then on panels; each time the rows that are left."""
    if not nodes:
        return _by_panels(g)
    found, resolved = integrate_trapezoid(g, nodes[0])
    left = resolved.logical_not().nonzero()[:, 0]
    if len(left):
        rest = _refine(Integrand(g.mean[left], g.rate[left]), nodes[1:])
        for column, part in zip(found, rest, strict=True):
            column[left] = part
    return found


def _by_panels(g: Integrand) -> Integrals:
    """Integrate on Gauss–Legendre panels, a few rows at a time."""
    rivals = g.mean.shape[1]
    panels = 2 * len(INWARD) + len(STEPS) * min(rivals, MANY)
    size = max(1, BYTES // (8 * rivals * ORDER * panels))
    pieces = [Integrand(*piece) for piece in zip(*(torch.split(t, size) for t in g), strict=True)]
    parts = [_integrate(piece, _breakpoints(piece, piece.find_mode(NEWTON))) for piece in pieces]
    return concatenate(parts)


def _integrate(g: Integrand, edges: Tensor) -> Integrals:
    grid = piecewise_legendre(edges)
    x = grid.nodes  # [B Q]
    z = g.z(x)
    log_g = log_ndtr(z).sum(-1) - 0.5 * x * x + grid.log_weights
    value = log_g.logsumexp(-1)
    p = (log_g - value[:, None]).exp()
    h = hazard(z)
    return Integrals(value, (p[:, None] @ h)[:, 0], (p[:, None] @ (z * h))[:, 0])


def _ends(g: Integrand, mode: Tensor) -> Tensor:
    """Return where g has fallen by DROP on either side, [2 B]; Newton's steps from outside never overshoot, as −g'' ≥ 1."""
    value = g.log_value(mode[:, None])[:, 0]
    reach = math.sqrt(2 * DROP)
    x = torch.stack([mode - reach, mode + reach])
    for _ in range(NEWTON):
        z = (x[..., None] - g.mean) * g.rate
        excess = (log_ndtr(z).sum(-1) - 0.5 * x * x - value + DROP).clamp(max=0)
        x = x - excess / ((hazard(z) * g.rate).sum(-1) - x)
    return x


def _breakpoints(g: Integrand, mode: Tensor) -> Tensor:
    """Return sorted breakpoints [B E]: graded from both ends towards the mode, and around every rival's step."""
    low, high = _ends(g, mode)[..., None]
    inward = constant(INWARD, mode)
    centre = mode[:, None]
    graded = torch.cat([centre + (low - centre) * inward, centre, centre + (high - centre) * inward], 1)
    around = (g.mean[..., None] + constant(STEPS, mode) / g.rate[..., None]).flatten(1).sort(-1).values
    most = MANY * len(STEPS)
    inside = around.clamp(low, high) if around.shape[1] <= most else thin(around, low, high, most)
    return torch.cat([graded, inside], 1).sort(-1).values


def integrate_trapezoid(g: Integrand, nodes: int) -> tuple[Integrals, Tensor]:
    """Return the integrals of each row, and whether it is resolved, [B]."""
    size = max(1, CACHE_BYTES // (8 * g.mean.shape[1] * nodes))
    if len(g.mean) <= size:
        return _sum_nodes(g, nodes)
    pieces = zip(*(torch.split(t, size) for t in g), strict=True)
    parts, resolved = zip(*(_sum_nodes(Integrand(*piece), nodes) for piece in pieces), strict=True)
    return concatenate(parts), torch.cat(resolved)


class _Span(NamedTuple):
    """Where g is above g(x₀) − FALL, and g(x₀), for a point x₀ left of its mode."""

    low: Tensor  # [B]
    high: Tensor  # [B]
    top: Tensor  # [B]


def _find_span(g: Integrand) -> _Span:
    r"""−g'' decreases with x, from −g''(x₀) at most to 1, and g(x) ≤ −½ x², so that with γ = g'(x₀), κ = −g''(x₀)

    x ≥ x₀ − (√(γ² + 2κ FALL) − γ)/κ        x ≤ x₀ + γ + √(γ² + 2 FALL)        x² ≤ 2 (FALL − g(x₀))
    """
    x = g.start()
    slope, bend = g.derivatives(x)
    top = g.log_value(x[:, None])[:, 0]
    square = slope.square()
    low = x - ((square + 2 * FALL * bend).sqrt() - slope) / bend
    return _Span(low, torch.minimum(x + slope + (square + 2 * FALL).sqrt(), (2 * (FALL - top)).sqrt()), top)


def _sum_nodes(g: Integrand, nodes: int) -> tuple[Integrals, Tensor]:
    """Return the integrals of some rows, and whether they are resolved: leaving out every other node changes them little."""
    B, R = g.mean.shape
    low, high, top = _find_span(g)
    h = (high - low) / nodes
    steps = constant((*range(0, nodes, 2), *range(1, nodes, 2)), h)
    x = torch.addcmul(low[:, None], h[:, None], steps)  # [B Q]
    z = (x[:, None] - g.mean[..., None]).mul_(g.rate[..., None])  # [B R Q]
    minus_log = Workspace(z.numel()).minus_log_cdf(CELLS * z)
    terms = h.new_empty(B, 1 + 2 * R, nodes)
    weight, rates, pulls = terms[:, :1], terms[:, 1 : 1 + R], terms[:, 1 + R :]
    torch.exp(torch.addcmul(minus_log.sum(1), x, x, value=0.5).add_(top[:, None]).neg_()[:, None], out=weight)
    beta = minus_log.addcmul_(z, z, value=-0.5).sub_(LOG_SQRT_2PI).exp_()
    torch.mul(beta, weight, out=rates)
    torch.mul(rates, z, out=pulls)
    even, odd = terms.view(B, 1 + 2 * R, 2, nodes // 2).sum(-1).unbind(-1)
    total = even + odd
    norm = total[:, :1]
    settled = ((even - odd).abs_() < MOST_CHANGE * (norm + total.abs())).all(1)
    fine = ((z[..., 0] > LOW) & (_log_error(g, h, top) < LOG_ERROR)).all(1)
    return Integrals((norm[:, 0] * h).log() + top, *(total[:, 1:] / norm).chunk(2, 1)), settled & fine


def _log_error(g: Integrand, h: Tensor, top: Tensor) -> Tensor:
    r"""Return the logarithm of the error at each rival's step, which may be too narrow for a sum over every other node, [B R].

    φ(x) φ((x − μ)/s) is a normal of precision p = 1 + 1/s² and mass exp(−½ μ²/(1 + s²)); the rule errs by exp(−2π²/(p h²)) of it.
    """
    curve = g.rate.square()
    return (
        -(2 * math.pi**2 / h.square()[:, None] + 0.5 * g.mean.square() * curve) / (1 + curve) - top[:, None]
    )
