"""How the spread of residuals varies from row to row, learnt from held-out rows.

    E|y − m| / sd ∝ s(x) = exp(b(x)ᵀβ)

b has features and the predicted mean, their squares and their distances from medians.

A row's interval is m ± c · s(x) · sd. c is a conformal quantile of the held-out
|y − m| / (s sd), where s comes from the other parts of the rows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cavity.common.scoring import average
from cavity.common.types import Flags, Floats, Ints

LEAST_ROWS = 40  # with fewer, a spread is not learnt
MOST_TERMS = 200  # of b; more would take long
RIDGES = (0.3, 0.03, 0.003)  # per row; the one with the largest gain is taken
EDGES = 2, 50, 98  # percentiles of an input: s is constant beyond the outer ones
STEPS = 30  # at most
DAMPING = 0.7  # large residuals make a whole step overshoot
TOL = 1e-4
MOST_RATIO = 4.0  # of |residual| to its spread, in a step
MOST_LOG = 2.0  # |log s|
GAIN = 1.0  # standard errors by which a spread must improve the held-out loss
TINY = 1e-12


class Spread(NamedTuple):
    """log s(x) = b(x)ᵀβ. Without terms s is 1."""

    low: Floats  # [T], smallest value of each input at the held-out rows, about
    middle: Floats  # [T], median
    high: Floats  # [T]
    beta: Floats  # [3T + 1]

    def at(self, X: Floats, mean: Floats) -> Floats:
        """Return s at rows with predicted means, both in the units of the fit."""
        if not len(self.low):
            return np.ones(len(mean))

        return np.exp(log_spread(self.expand(np.column_stack([X, mean])), self.beta))

    def expand(self, inputs: Floats) -> Floats:
        """Return b at each row: inputs in units of their range, squares, distances."""
        width = np.maximum(self.high - self.low, TINY)
        U = 2 * (np.clip(inputs, self.low, self.high) - self.middle) / width
        return np.column_stack([np.ones(len(U)), U, U**2, np.abs(U)])


EVEN = Spread(np.empty(0), np.empty(0), np.empty(0), np.zeros(1))


def learn_spread(
    X: Floats, mean: Floats, ratio: Floats, weight: Floats, part: Ints
) -> tuple[Spread, Floats]:
    """Return the spread of |y − m| / sd, and s at each row from the other parts.

    The spread is even unless it improves the loss of the other parts by more than
    its standard error.
    """
    even = EVEN, np.ones(len(ratio))
    T = X.shape[1] + 1
    if len(ratio) < LEAST_ROWS or 3 * T >= MOST_TERMS or not ratio.any():
        return even

    parts = [part == i for i in np.unique(part)]
    if len(parts) < 2:
        return even

    inputs = np.column_stack([X, mean])
    low, middle, high = np.percentile(inputs, EDGES, axis=0)
    spread = Spread(low, middle, high, np.zeros(3 * T + 1))
    rows = _Rows(spread.expand(inputs), ratio, weight)
    plain = rows.hold_out(parts, math.inf)
    found = []
    for ridge in RIDGES:
        log_s = rows.hold_out(parts, ridge)
        gain = average(rows.loss(plain) - rows.loss(log_s), weight)
        found.append((gain.value - GAIN * gain.error, ridge, log_s))

    least, ridge, log_s = max(found, key=lambda each: each[0])
    if least <= 0:
        return even

    beta = rows.fit(ridge)
    s = np.exp(log_s - beta[0])
    beta[0] = 0.0
    return spread._replace(beta=beta), s


class _Rows(NamedTuple):
    """Held-out rows: |residual| / sd has an exponential distribution of mean s."""

    B: Floats  # [N 3T+1]
    ratio: Floats  # [N]
    weight: Floats  # [N]

    def loss(self, log_s: Floats) -> Floats:
        """Return the negative log density."""
        return np.asarray(log_s + self.ratio * np.exp(-log_s))

    def hold_out(self, parts: list[Flags], ridge: float) -> Floats:
        """Return log s of the rows of each part from the other parts."""
        log_s = np.empty(len(self.ratio))
        for out in parts:
            rest = _Rows(*(column[~out] for column in self))
            log_s[out] = log_spread(self.B[out], rest.fit(ridge))
        return log_s

    def fit(self, ridge: float) -> Floats:
        """Return β by Fisher scoring, with a ridge on all but β₀; inf: only β₀."""
        beta = np.zeros(self.B.shape[1])
        beta[0] = np.log(max(average(self.ratio, self.weight).value, TINY))
        if math.isinf(ridge):
            return beta

        penalty = np.full(len(beta), ridge * self.weight.sum())
        penalty[0] = 0.0
        H = (self.B.T * self.weight) @ self.B + np.diag(penalty)
        for _ in range(STEPS):
            pull = self.ratio * np.exp(-log_spread(self.B, beta))
            score = self.weight * (np.minimum(pull, MOST_RATIO) - 1)
            step = np.linalg.solve(H, self.B.T @ score - penalty * beta)
            beta = beta + DAMPING * step
            if np.abs(step).max() < TOL:
                break

        return beta


def log_spread(B: Floats, beta: Floats) -> Floats:
    """Return log s, limited around β₀."""
    return beta[0] + np.clip(B[:, 1:] @ beta[1:], -MOST_LOG, MOST_LOG)
