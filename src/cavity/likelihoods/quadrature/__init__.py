"""Integrals over one latent value, near machine precision at all scales."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cavity.common.lazy import load_names

if TYPE_CHECKING:
    from cavity.likelihoods.quadrature.argmax import MANY, leader_is_sure, log_argmax_probability
    from cavity.likelihoods.quadrature.correlated import log_softmax_probability, softmax_uncertainty
    from cavity.likelihoods.quadrature.grid import ORDER, SPREAD
    from cavity.likelihoods.quadrature.information import EntropyParts, Latent, uncertainty
    from cavity.likelihoods.quadrature.largest import Win, win
    from cavity.likelihoods.quadrature.noisy_argmax import Largest, softened
    from cavity.likelihoods.quadrature.power import has_short_rule, probit_power
    from cavity.likelihoods.quadrature.probit import probit_average
    from cavity.likelihoods.quadrature.softmax import (
        log_sigmoid_probability,
        sigmoid_average,
        softmax_average,
    )

__all__ = [
    "MANY",
    "ORDER",
    "SPREAD",
    "EntropyParts",
    "Largest",
    "Latent",
    "Win",
    "has_short_rule",
    "leader_is_sure",
    "log_argmax_probability",
    "log_sigmoid_probability",
    "log_softmax_probability",
    "probit_average",
    "probit_power",
    "sigmoid_average",
    "softened",
    "softmax_average",
    "softmax_uncertainty",
    "uncertainty",
    "win",
]


if not TYPE_CHECKING:  # torch is loaded with the first name
    __getattr__ = load_names(
        __name__,
        {
            "argmax": ("MANY", "leader_is_sure", "log_argmax_probability"),
            "noisy_argmax": ("Largest", "softened"),
            "correlated": ("log_softmax_probability", "softmax_uncertainty"),
            "grid": ("ORDER", "SPREAD"),
            "information": ("Latent", "EntropyParts", "uncertainty"),
            "largest": ("Win", "win"),
            "power": ("has_short_rule", "probit_power"),
            "probit": ("probit_average",),
            "softmax": ("log_sigmoid_probability", "sigmoid_average", "softmax_average"),
        },
    )
