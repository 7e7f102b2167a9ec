"""Likelihoods: moments for the engine, probabilities for prediction, and one registry of all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cavity.common.lazy import load_names

if TYPE_CHECKING:
    from cavity.likelihoods.library import (
        LIKELIHOODS,
        BinaryProbit,
        Committee,
        Gaussian,
        Jaakkola,
        Latents,
        Likelihood,
        Logistic,
        LogisticPoint,
        Moments,
        ProbitPairs,
        RobustBinary,
        RobustMax,
        Softmax,
        Taylor,
    )

__all__ = [
    "LIKELIHOODS",
    "BinaryProbit",
    "Committee",
    "Gaussian",
    "Jaakkola",
    "Latents",
    "Likelihood",
    "Logistic",
    "LogisticPoint",
    "Moments",
    "ProbitPairs",
    "RobustBinary",
    "RobustMax",
    "Softmax",
    "Taylor",
]


if not TYPE_CHECKING:  # torch is loaded with the first name
    __getattr__ = load_names(__name__, {"library": tuple(__all__)})
