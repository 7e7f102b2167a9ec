"""Integrals over one latent value, near machine precision at all scales."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cavity.lazy import load_names

if TYPE_CHECKING:
    from cavity.quadrature.argmax import MANY, MOST_EDGES, leader_is_sure, log_argmax_probability
    from cavity.quadrature.choice import Largest, softened
    from cavity.quadrature.correlated import log_softmax_probability, softmax_uncertainty
    from cavity.quadrature.grid import ORDER, SPREAD
    from cavity.quadrature.information import Latent, Uncertainty, uncertainty
    from cavity.quadrature.largest import Win, win
    from cavity.quadrature.power import has_short_rule, probit_power
    from cavity.quadrature.probit import probit_average
    from cavity.quadrature.softmax import log_sigmoid_probability, sigmoid_average, softmax_average

__all__ = [
    "MANY",
    "MOST_EDGES",
    "ORDER",
    "SPREAD",
    "Largest",
    "Latent",
    "Uncertainty",
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
            "argmax": ("MANY", "MOST_EDGES", "leader_is_sure", "log_argmax_probability"),
            "choice": ("Largest", "softened"),
            "correlated": ("log_softmax_probability", "softmax_uncertainty"),
            "grid": ("ORDER", "SPREAD"),
            "information": ("Latent", "Uncertainty", "uncertainty"),
            "largest": ("Win", "win"),
            "power": ("has_short_rule", "probit_power"),
            "probit": ("probit_average",),
            "softmax": ("log_sigmoid_probability", "sigmoid_average", "softmax_average"),
        },
    )
