"""Inference methods with options, such as `GPClassifier(method=REP(epsilon=0.05))`.

A method given by name has its default options.
"""

from cavity.fitting.options.classification_methods import (
    EP,
    GFITC,
    REP,
    SEP,
    VI,
    Auto,
    Laplace,
    PowerEP,
)
from cavity.fitting.options.method import METHODS, Method
from cavity.fitting.options.regression_methods import (
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
