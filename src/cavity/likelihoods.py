"""Likelihoods (moments for training, probabilities for prediction), and a registry."""

from cavity.engine.likelihoods.base import Latents, Likelihood, Moments
from cavity.engine.likelihoods.gaussian import Committee, Gaussian
from cavity.engine.likelihoods.library import LIKELIHOODS
from cavity.engine.likelihoods.logistic_bounds import Jaakkola, Taylor
from cavity.engine.likelihoods.ordinal import Ordinal
from cavity.engine.likelihoods.probit import BinaryProbit, ProbitPairs
from cavity.engine.likelihoods.robust import RobustBinary, RobustMax
from cavity.engine.likelihoods.softmax import Logistic, LogisticPoint, Softmax

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
    "Ordinal",
    "ProbitPairs",
    "RobustBinary",
    "RobustMax",
    "Softmax",
    "Taylor",
]
