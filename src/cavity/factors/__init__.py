"""Likelihoods: moments for the engine, probabilities for prediction, and one registry of all of them."""

from cavity.factors.base import LIKELIHOODS, Latents, Likelihood, Moments
from cavity.factors.bounds import Jaakkola, Taylor
from cavity.factors.gaussian import Committee, Gaussian
from cavity.factors.point import LogisticPoint
from cavity.factors.probit import BinaryProbit, ProbitPairs
from cavity.factors.robust import RobustBinary, RobustMax
from cavity.factors.softmax import Logistic, Softmax

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
