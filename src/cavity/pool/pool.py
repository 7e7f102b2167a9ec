r"""A geometric pool: p ∝ p_GP^w₀ Π_j p_j^w_j.

A single weight is a temperature. [METHOD 13, 14]

Trees are confident everywhere, so they count less away from the training rows, by a
gate g(x) from 1 to 0: [METHOD 16]

    p ∝ p_GP^(w₀ g + w (1 − g)) Π_j p_j^(w_j g)        w = min(1, Σ_j w_j)

`pool.weights` fits the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import methodcaller
from typing import Any, NamedTuple

import numpy as np

from cavity.common.namespaces import NUMPY, namespace
from cavity.common.types import Floats
from cavity.pool.networks import LinearModel, Network
from cavity.pool.tree_ensembles import Forest

Member = Forest | LinearModel | Network


class Gate(NamedTuple):
    """Weight of the members at a row: 1 where f is known as well as at held-out rows,
    0 where it is unknown.

        g(x) = clip((1 − u(x)) / (1 − u₉₅), 0, 1)        u(x) = mean_c v_c(x) / v⁰_c

    v is the variance of f at x, noise included; v⁰ is the mean of k(x, x) + s over
    training rows, and u₉₅ the 95% quantile of u at held-out rows, under models that did
    not see them. Far from the rows a stationary kernel has u = 1; a linear term adds to
    v, so that u grows beyond 1.
    """

    scale: Floats  # [C], 1 / (C v⁰_c)
    usual: float  # u₉₅

    def at(self, var: Any) -> Any:
        """Return g [n 1] from variances [n C], an array or a value of an ONNX graph.

        The scale is a matrix: onnxruntime multiplies a transposed matrix and a vector
        wrongly.
        """
        u = var @ self.scale[:, None]
        return namespace(var).clip((1 - u) / (1 - self.usual), 0.0, 1.0)


def name_member(member: Member) -> str:
    """Return the name of a member in plans, messages and summaries of files."""
    if isinstance(member, LinearModel):
        return "logistic regression"
    if isinstance(member, Network):
        return "networks"
    if member.boosted:
        return "boosting"

    has_one_node = len(member.child) == 1
    return "class frequencies" if has_one_node else "extra trees"


class Pool(NamedTuple):
    """The weights of the Gaussian process and of the other classifiers."""

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
        """Whether the Gaussian process alone predicts."""
        return self.weight == 1.0 and not self.members

    def combine(self, log_p: Floats, X: Floats, var: Floats) -> Floats:
        """Return normalised log-probabilities of rows, [n C].

        `log_p` and `var`: log-probabilities and variances of f from the Gaussian
        process.
        """
        if self.is_trivial:
            return log_p

        ask = methodcaller("log_proba", X)
        logs = [partial(ask, member) for member in self.members]
        return normalised(self.add_members(log_p, var, logs))

    def add_members(
        self, log_p: Any, var: Any, logs: Sequence[Callable[[], Any]]
    ) -> Any:
        """Return the weighted sum of log-probabilities, [n C].

        `logs` compute the members' log-probabilities; only members with a weight are
        computed.
        """
        own: Any = self.weight
        gate: Any = 1.0
        if self.gate is not None and any(self.weights):
            gate = self.gate.at(var)
            # a model that is too confident is so everywhere
            far = min(1.0, self.weight + sum(self.weights))
            own = far + (self.weight - far) * gate

        total = own * log_p
        for weight, log_member in zip(self.weights, logs, strict=True):
            if weight:
                total = total + weight * gate * log_member()
        return total


NO_POOL = Pool()


def normalised(log_p: Floats) -> Floats:
    """Return log_p minus its log-sum over classes, [n C]."""
    return np.asarray(NUMPY.log_softmax(log_p))
