"""What the likelihoods of the library predict, from their names and numbers: the classes themselves load torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from cavity.common.namespaces import Array
from cavity.likelihoods.quadrature.information import EntropyParts, Latent, uncertainty
from cavity.likelihoods.quadrature.noisy_argmax import Largest
from cavity.likelihoods.quadrature.probabilities import log_largest, log_probit, with_random_labels


class ClassOutcome(NamedTuple):
    """The class with the largest noisy f wins, or is drawn at random with probability ε. The methods are those of a likelihood."""

    log_win: Callable[[Array, Array], Array]
    n_classes: int
    epsilon: float | None = None  # None: the likelihood has no such share

    def log_probability(self, mean: Array, var: Array) -> Array:
        return with_random_labels(self.log_win(mean, var), self.epsilon or 0.0, self.n_classes)

    def uncertainty(self, mean: Array, var: Array, noise: Array) -> EntropyParts:
        latent = Latent(mean, var, self.log_win(mean, var + noise), self.epsilon or 0.0)
        return uncertainty(latent, Largest(noise))


class TargetOutcome(NamedTuple):
    """A target with Gaussian noise of this variance."""

    noise: float


def make_outcome(
    name: str, arguments: dict[str, Any], state: dict[str, Array], n_classes: int | None
) -> ClassOutcome | TargetOutcome | None:
    """Return the outcome of a likelihood of the library; None for other names, or arguments that its class must check."""
    if name in ("Gaussian", "Committee"):
        plain = (
            n_classes is None and arguments.keys() == {"noise", "learn", "projected"} and "log_noise" in state
        )
        return (
            TargetOutcome(float(math.exp(state["log_noise"][0]))) if plain and _is_plain(arguments) else None
        )
    two = n_classes == 2
    if (
        n_classes is None
        or not _is_plain(arguments)
        or arguments.get("n_classes", n_classes) not in (None, n_classes)
    ):
        return None
    given = arguments.keys() - {"n_classes"}
    log_win = log_probit if two else log_largest
    if name == ("BinaryProbit" if two else "ProbitPairs") and not given and not state:
        return ClassOutcome(log_win, n_classes)
    if (
        name == ("RobustBinary" if two else "RobustMax")
        and given == {"epsilon", "learn"}
        and "epsilon" in state
    ):
        share = float(state["epsilon"])
        if "log_odds" in state:
            share = 1 / (1 + math.exp(-float(state["log_odds"][0])))
        return ClassOutcome(log_win, n_classes, share)
    return None


def _is_plain(arguments: dict[str, Any]) -> bool:
    """Return whether all arguments are finite numbers, flags or None."""
    return all(
        value is None or (isinstance(value, bool | int | float) and math.isfinite(value))
        for value in arguments.values()
    )
