"""The likelihood of a method: given by name or as an object, bound to the classes once they are known."""

from __future__ import annotations

import copy
from typing import Any

from cavity.errors import BadOption
from cavity.likelihoods import LIKELIHOODS, Likelihood
from cavity.options.value_checks import number

DEFAULT_EPSILON = 1e-3
LEARNT_EPSILON = (
    0.1  # where a learnt epsilon starts: too much label noise is unlearnt more easily than too little
)
PREDICTIVES = ("quadrature", "probit")


def read_likelihood(value: Any) -> Likelihood:
    """Return a likelihood, given one or its registered name; the number of classes is not known yet."""
    names = LIKELIHOODS.short_names()
    if isinstance(value, str) and value in names:
        return names[value]()
    if isinstance(value, Likelihood):
        return value
    raise BadOption(
        f"likelihood={value!r:.80} is unknown; use one of {', '.join(map(repr, names))}, or an instance of "
        "cavity.likelihoods.Likelihood."
    )


def bind_likelihood(likelihood: Likelihood, n_classes: int, learn: frozenset[str]) -> Likelihood:
    """Return a copy of the likelihood for this number of classes, its epsilon learnt if `learn` says so."""
    if "epsilon" in learn:
        start = LEARNT_EPSILON if likelihood.epsilon == DEFAULT_EPSILON else likelihood.epsilon
        likelihood = copy.deepcopy(likelihood).set_params(epsilon=start, learn=True)
    return likelihood.bind(n_classes)


def check_epsilon(value: Any, owner: str) -> float:
    """Check a share of random labels."""
    epsilon = number("epsilon", value, 0.0, 1.0, strict=False)
    if epsilon == 1:
        raise BadOption(
            f"epsilon=1 of {owner} says that every label is random: nothing can be learnt; use a share below 1."
        )
    return epsilon


def check_predictive(predictive: str, n_classes: int) -> None:
    """Refuse the probit formula for more than two classes."""
    if predictive == "probit" and n_classes > 2:
        raise BadOption(
            f"predictive='probit' is a formula for two classes, and y has {n_classes}: use predictive='quadrature'."
        )
