"""What the likelihoods of the library predict, given their names and numbers.

This module does not load torch; the classes themselves do.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from cavity.common.namespaces import Array
from cavity.engine.likelihoods.quadrature.information import (
    EntropyParts,
    Latent,
    uncertainty,
)
from cavity.engine.likelihoods.quadrature.noisy_argmax import Largest, Softened
from cavity.engine.likelihoods.quadrature.probabilities import (
    LOGISTIC,
    log_largest,
    log_probit,
    log_softmax,
    with_random_labels,
)
from cavity.errors import BadOption


class LargestWins(NamedTuple):
    """The largest noisy f wins, but a share ε of labels is drawn at random."""

    n_classes: int
    epsilon: float | None = None  # None: the likelihood has no such share

    def log_probability(self, mean: Array, var: Array) -> Array:
        log_p = self._log_win(mean, var)
        return with_random_labels(log_p, self.epsilon or 0.0, self.n_classes)

    def uncertainty(self, mean: Array, var: Array, noise: Array) -> EntropyParts:
        mean, var, noise = map(np.asarray, (mean, var, noise))
        log_p = self._log_win(mean, var + noise)
        latent = Latent(mean, var, log_p, self.epsilon or 0.0)
        return uncertainty(latent, Largest(noise))

    def _log_win(self, mean: Array, var: Array) -> Array:
        if self.n_classes == 2:
            return log_probit(mean, var)

        return log_largest(mean, var)


class DrawnBySoftmax(NamedTuple):
    """The class is drawn with the probabilities softmax(f)."""

    n_classes: int
    epsilon: None = None
    predictive: str = "quadrature"  # how σ(f) of two classes is averaged

    def log_probability(self, mean: Array, var: Array) -> Array:
        if self.n_classes == 2:
            return LOGISTIC[self.predictive](mean, var)

        return log_softmax(mean, var)

    def uncertainty(self, mean: Array, var: Array, noise: Array) -> EntropyParts:
        if self.predictive != "quadrature":
            raise BadOption(
                f"predictive={self.predictive!r} is not the average over f, whose "
                "entropy has two parts: use predictive='quadrature'."
            )

        mean, var, noise = map(np.asarray, (mean, var, noise))
        if noise.any():
            raise BadOption(
                "the entropy of a softmax of noisy latent values has no split: use "
                "method='ep', 'rep' or 'laplace', or no noise, "
                "Training(noise=0, learn=('kernel', 'inducing'))."
            )

        latent = Latent(mean, var, self.log_probability(mean, var), 0.0)
        return uncertainty(latent, Softened(noise))


class NoisyTarget(NamedTuple):
    """A target with Gaussian noise of this variance."""

    noise: float


class WithOutcome:
    """A likelihood that predicts as its outcome does."""

    outcome: Any

    def log_probability(self, mean: Array, var: Array) -> Array:
        return self.outcome.log_probability(mean, var)

    def uncertainty(self, mean: Array, var: Array, noise: Array) -> EntropyParts:
        return self.outcome.uncertainty(mean, var, noise)


def find_noise(log_noise: Any) -> float:
    """Return the variance σ² of log σ² [1]."""
    return math.exp(log_noise[0])


def find_share(log_odds: Any) -> float:
    """Return the share ε of its log-odds [1]."""
    return 1 / (1 + math.exp(-log_odds[0]))


GAUSSIAN = {"noise", "learn", "projected"}
ROBUST = {"epsilon", "learn"}
# for each likelihood: its outcome, whether it is for two classes, and its arguments
OUTCOMES: dict[str, tuple[Any, bool, set[str]]] = {
    "ProbitPairs": (LargestWins, False, set()),
    "BinaryProbit": (LargestWins, True, set()),
    "RobustMax": (LargestWins, False, ROBUST),
    "RobustBinary": (LargestWins, True, ROBUST),
    "Softmax": (DrawnBySoftmax, False, set()),
    **dict.fromkeys(
        ("Logistic", "LogisticPoint", "Jaakkola", "Taylor"),
        (DrawnBySoftmax, True, {"predictive"}),
    ),
}


def make_outcome(
    name: str, arguments: dict[str, Any], state: dict[str, Array], n_classes: int | None
) -> LargestWins | DrawnBySoftmax | NoisyTarget | None:
    """Return the outcome of a likelihood of the library.

    None for other names, or for arguments that the class must check.
    """
    predictive = arguments.get("predictive", "quadrature")
    if predictive not in LOGISTIC:
        return None

    numbers = [
        value
        for name, value in arguments.items()
        if value is not None and name != "predictive"
    ]
    plain = all(isinstance(v, bool | int | float) and math.isfinite(v) for v in numbers)
    if not plain or arguments.get("n_classes") not in (None, n_classes):
        return None

    given = arguments.keys() - {"n_classes"}
    if n_classes is None:
        known = name in ("Gaussian", "Committee") and given == GAUSSIAN
        if known and state.keys() == {"log_noise"} and arguments["noise"] > 0:
            return NoisyTarget(find_noise(state["log_noise"]))

        return None
    if name not in OUTCOMES:
        return None

    outcome, two, needed = OUTCOMES[name]
    # files from before the choice of a predictive lack it
    if two != (n_classes == 2) or given | (needed - ROBUST) != needed:
        return None
    if needed is not ROBUST:
        if state:
            return None

        made = outcome(n_classes)
        if needed:
            made = made._replace(predictive=predictive)
        return made

    start = arguments["epsilon"]
    learnt = "log_odds" in state
    if not 0 <= start < 1 or learnt != bool(arguments["learn"]):
        return None
    if not learnt:
        return outcome(n_classes, float(start))
    if start == 0:  # has no log-odds
        return None

    return outcome(n_classes, find_share(state["log_odds"]))
