"""Likelihoods and their registry.

They give moments to the engine and probabilities to prediction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cavity.common.lazy import load_names

if TYPE_CHECKING:
    from cavity.engine.likelihoods.base import Latents, Likelihood, Moments
    from cavity.engine.likelihoods.gaussian import Committee, Gaussian
    from cavity.engine.likelihoods.library import LIKELIHOODS
    from cavity.engine.likelihoods.logistic_bounds import Jaakkola, Taylor
    from cavity.engine.likelihoods.ordinal import Ordinal
    from cavity.engine.likelihoods.probit import BinaryProbit, ProbitPairs
    from cavity.engine.likelihoods.robust import RobustBinary, RobustMax
    from cavity.engine.likelihoods.softmax import Logistic, LogisticPoint, Softmax
else:  # torch is loaded with the first name
    __getattr__, __all__, __dir__ = load_names(
        __name__,
        {
            "base": "Latents Likelihood Moments",
            "gaussian": "Committee Gaussian",
            "library": "LIKELIHOODS",
            "logistic_bounds": "Jaakkola Taylor",
            "ordinal": "Ordinal",
            "probit": "BinaryProbit ProbitPairs",
            "robust": "RobustBinary RobustMax",
            "softmax": "Logistic LogisticPoint Softmax",
        },
    )
