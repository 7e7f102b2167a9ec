"""Inference methods as objects: `GPClassifier(method=REP(epsilon=0.05))`. Their names stand for their defaults."""

from cavity.config.classification_methods import EP, GFITC, REP, SEP, Auto, PowerEP
from cavity.config.methods import METHODS, Method
from cavity.config.regression_methods import (
    BCM,
    FITC,
    SGPR,
    SVGP,
    ConjugateGradients,
    Exact,
    Nystrom,
    ProjectedProcess,
    RegressionMethod,
    SubsetOfData,
    SubsetOfRegressors,
)
from cavity.config.variational_methods import VI, Laplace

__all__ = [
    "BCM",
    "EP",
    "FITC",
    "GFITC",
    "METHODS",
    "REP",
    "SEP",
    "SGPR",
    "SVGP",
    "VI",
    "Auto",
    "ConjugateGradients",
    "Exact",
    "Laplace",
    "Method",
    "Nystrom",
    "PowerEP",
    "ProjectedProcess",
    "RegressionMethod",
    "SubsetOfData",
    "SubsetOfRegressors",
]
