"""Every class that `cavity.likelihoods` registers. Add a module here to make its classes known."""

from cavity.likelihoods.base import LIKELIHOODS, Latents, Likelihood, Moments
from cavity.likelihoods.gaussian import Committee, Gaussian
from cavity.likelihoods.logistic_bounds import Jaakkola, Taylor
from cavity.likelihoods.logistic_point import LogisticPoint
from cavity.likelihoods.probit import BinaryProbit, ProbitPairs
from cavity.likelihoods.robust import RobustBinary, RobustMax
from cavity.likelihoods.softmax import Logistic, Softmax

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
