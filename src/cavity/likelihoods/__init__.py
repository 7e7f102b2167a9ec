"""Likelihoods: moments for the engine, probabilities for prediction, and one registry of all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cavity.common.lazy import load_names

if TYPE_CHECKING:
    from cavity.likelihoods.base import Latents as Latents
    from cavity.likelihoods.base import Likelihood as Likelihood
    from cavity.likelihoods.base import Moments as Moments
    from cavity.likelihoods.gaussian import Committee as Committee
    from cavity.likelihoods.gaussian import Gaussian as Gaussian
    from cavity.likelihoods.library import LIKELIHOODS as LIKELIHOODS
    from cavity.likelihoods.probit import BinaryProbit as BinaryProbit
    from cavity.likelihoods.probit import ProbitPairs as ProbitPairs
    from cavity.likelihoods.robust import RobustBinary as RobustBinary
    from cavity.likelihoods.robust import RobustMax as RobustMax
    from cavity.likelihoods.softmax import Logistic as Logistic
    from cavity.likelihoods.softmax import LogisticPoint as LogisticPoint
    from cavity.likelihoods.softmax import Softmax as Softmax
else:  # torch is loaded with the first name
    __getattr__, __all__, __dir__ = load_names(
        __name__,
        {
            "base": "Latents Likelihood Moments",
            "gaussian": "Committee Gaussian",
            "library": "LIKELIHOODS",
            "probit": "BinaryProbit ProbitPairs",
            "robust": "RobustBinary RobustMax",
            "softmax": "Logistic LogisticPoint Softmax",
        },
    )
