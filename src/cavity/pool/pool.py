r"""A geometric pool: p ∝ p_GP^w₀ Π_j p_j^w_j.

One weight alone is a temperature. [METHOD 13, 14]

Trees are confident everywhere, so they count less away from the training rows, by a
gate g(x) from 1 to 0: [METHOD 16]

    p ∝ p_GP^(w₀ g + w (1 − g)) Π_j p_j^(w_j g)        w = min(1, Σ_j w_j)

The weights maximise the likelihood of held-out rows minus a penalty that keeps them
near (1, 0, ..., 0) on small tables:

    temperature    Σ_n ω_n log softmax(w L)[y_n] − 5 |log w|
    pool           Σ_n ω_n log softmax(Σ_j w_j L_j)[y_n] − 3 (log Σ_j w_j)² − 2 |w − (1, 0, ..., 0)|²
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from operator import methodcaller
from typing import Any, NamedTuple

import numpy as np

from cavity.common.namespaces import NUMPY, namespace
from cavity.common.types import Floats, Ints
from cavity.pool.networks import LinearModel, Network
from cavity.pool.tree_ensembles import Forest

Member = Forest | LinearModel | Network
# on |log w|: a Laplace prior of scale 0.2, whose tails let an easy table ask for w = 3
TEMPERATURE_PENALTY = 5.0
WEIGHT_BOUNDS = 0.05, 20.0  # of a temperature's weight
POOL_PENALTY = 3.0  # on (log Σw)² of a pool: standard deviation 0.4
MEMBER_PENALTY = 2.0  # on the squared distance of a pool's weights from (1, 0, ..., 0)
LEAST_WEIGHT = 1e-6  # lower bound of a weight
# log-probabilities below this count as this: one certain and wrong row must not decide
# a weight
LOWEST = -30.0
USUAL = 0.95  # quantile of held-out rows up to which the trees count in full
MOST_USUAL = 0.99  # of u at that quantile


class Gate(NamedTuple):
    """How much the trees count at a row: 1 where f is known as well as at held-out
    rows, 0 where it is not known at all.

        g(x) = clip((1 − u(x)) / (1 − u₉₅), 0, 1)        u(x) = mean_c v_c(x) / v⁰_c

    v is the variance of f at x, noise included; v⁰ is the mean of k(x, x) + s over
    training rows, and u₉₅ the 95% quantile of u at held-out rows, of models that did
    not see them. Far from the rows a stationary kernel has u = 1; a linear term adds to
    v, so that u grows beyond 1.
    """

    scale: Floats  # [C], 1 / (C v⁰_c)
    usual: float  # u₉₅

    def at(self, var: Any) -> Any:
        """Return g at rows with the variances [n C], an array or a value of an ONNX
        graph: [n 1].

        The scale is a matrix: onnxruntime multiplies a transposed matrix and a vector
        wrongly.
        """
        u = var @ self.scale[:, None]
        return namespace(var).clip((1 - u) / (1 - self.usual), 0.0, 1.0)


def make_gate(scale: Floats, u: Floats) -> Gate | None:
    """Return the gate of a model with u [n] at rows that it did not see; None if it
    knows f at none.
    """
    usual = float(np.quantile(u, USUAL))
    if usual < MOST_USUAL:
        return Gate(scale, usual)
    return None


def name_member(member: Member) -> str:
    """Return what a member is called in plans, messages and files' summaries."""
    if isinstance(member, Forest):
        alone = len(member.child) == 1
        return (
            "boosting"
            if member.boosted
            else "class frequencies"
            if alone
            else "extra trees"
        )
    return "networks" if isinstance(member, Network) else "logistic regression"


class Pool(NamedTuple):
    """How predictions are made of the Gaussian process and other classifiers."""

    weight: float = 1.0  # of the Gaussian process
    members: tuple[Member, ...] = ()
    weights: tuple[float, ...] = ()  # of the members
    gate: Gate | None = None  # None: the members count everywhere

    @property
    def named_weights(self) -> dict[str, float]:
        """The weights by the names of the classifiers."""
        names = ["Gaussian process", *(name_member(member) for member in self.members)]
        return dict(zip(names, (self.weight, *self.weights), strict=True))

    @property
    def is_trivial(self) -> bool:
        """Whether predictions are those of the Gaussian process alone."""
        return self.weight == 1.0 and not self.members

    def combine(self, log_p: Floats, X: Floats, var: Floats) -> Floats:
        """Return normalised log-probabilities of rows, [n C], given those of the
        Gaussian process and its variances of f.
        """
        if self.is_trivial:
            return log_p
        ask = methodcaller("log_proba", X)
        logs = [partial(ask, member) for member in self.members]
        return normalised(self.add_members(log_p, var, logs))

    def add_members(
        self, log_p: Any, var: Any, logs: Sequence[Callable[[], Any]]
    ) -> Any:
        """Return the weighted sum of log-probabilities, [n C]; `logs` return those of
        members, and are called if these count.
        """
        g = None
        if not (self.gate is None or not self.members):
            g = self.gate.at(var)
        alone = min(
            1.0, self.weight + sum(self.weights)
        )  # a model that is too confident is so everywhere
        total = (
            self.weight if g is None else alone + (self.weight - alone) * g
        ) * log_p
        for weight, log_member in zip(self.weights, logs, strict=True):
            if weight:
                total = total + (weight if g is None else weight * g) * log_member()
        return total


NO_POOL = Pool()


def normalised(log_p: Floats) -> Floats:
    """Return log_p minus its log-sum over classes, [n C]."""
    return np.asarray(NUMPY.log_softmax(log_p))


class _HeldRows(NamedTuple):
    """Held-out rows: log-probabilities of J classifiers, labels and weights."""

    logs: Floats  # [J n C]
    y: Ints
    omega: Floats  # [n]

    def log_likelihood(self, w: Floats) -> Floats:
        """Return Σ_n ω_n log softmax(Σ_j w_j L_j)[y_n] and its gradient in w, [1 + J]."""
        rows = np.arange(len(self.y))
        log_q = normalised(np.tensordot(w, self.logs, 1))
        expected = (np.exp(log_q) * self.logs).sum(2)  # [J n]
        own = self.logs[:, rows, self.y]
        return np.array(
            [self.omega @ log_q[rows, self.y], *((own - expected) @ self.omega)]
        )


def fit_temperature(log_p: Floats, y: Ints, omega: Floats) -> float:
    """Return the weight w of log-probabilities [n C] at rows with labels y and weights
    ω.
    """
    from scipy.optimize import brentq

    rows = _HeldRows(np.maximum(log_p, LOWEST)[None], y, omega)

    def slope(v: float, penalty: float = 0.0) -> float:
        """Return the derivative of the log-likelihood in v = log w, minus that of the
        penalty.
        """
        w = math.exp(v)
        return w * float(rows.log_likelihood(np.array([w]))[1]) - penalty

    at_one = slope(0.0)
    if (
        not abs(at_one) > TEMPERATURE_PENALTY
    ):  # or NaN: a user's own likelihood may have no probabilities
        return 1.0
    penalty = math.copysign(TEMPERATURE_PENALTY, at_one)
    end = math.log(WEIGHT_BOUNDS[at_one > 0])
    if slope(end, penalty) * penalty >= 0:
        return math.exp(end)
    return math.exp(brentq(slope, 0.0, end, args=(penalty,), xtol=1e-9))


def fit_weights(parts: list[Floats], y: Ints, omega: Floats) -> Floats:
    """Return the weights of log-probabilities `parts`, each [n C], at rows with labels
    y and weights ω.

    A member whose weight ends at its lower bound gets 0: it would change log p by less
    than 2e-5, and it is never computed.
    """
    from scipy.optimize import minimize

    if len(parts) == 1:
        return np.array([fit_temperature(parts[0], y, omega)])
    rows = _HeldRows(np.stack([np.maximum(part, LOWEST) for part in parts]), y, omega)
    first = np.eye(len(parts))[0]

    def loss(w: Floats) -> tuple[float, Floats]:
        value, *slope = rows.log_likelihood(w)
        total = np.log(w.sum())
        off = MEMBER_PENALTY * (w - first)
        penalty = POOL_PENALTY * total**2 + off @ (w - first)
        return float(
            penalty - value
        ), 2 * POOL_PENALTY * total / w.sum() + 2 * off - np.array(slope)

    start = np.where(first > 0, 1.0, 0.1)
    bounds = [(LEAST_WEIGHT, 20.0)] * len(parts)
    found = np.asarray(
        minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x
    )
    found[1:][found[1:] <= LEAST_WEIGHT] = 0.0
    return found
