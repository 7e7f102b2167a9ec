"""Likelihoods as the engine sees them: moments, and where the sites sit."""

from cavity.factors.base import Latents, Likelihood, LikelihoodFactor, Moments
from cavity.factors.bounds import Jaakkola, Taylor
from cavity.factors.gaussian import Committee, Gaussian
from cavity.factors.point import LogisticPoint
from cavity.factors.probit import BinaryProbit, ProbitPairs
from cavity.factors.robust import RobustBinary, RobustMax
from cavity.factors.softmax import Logistic, Softmax

__all__ = [
    "BinaryProbit",
    "Committee",
    "Gaussian",
    "Jaakkola",
    "Latents",
    "Likelihood",
    "LikelihoodFactor",
    "Logistic",
    "LogisticPoint",
    "Moments",
    "ProbitPairs",
    "RobustBinary",
    "RobustMax",
    "Softmax",
    "Taylor",
]
