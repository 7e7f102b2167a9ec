"""Scalable multi-class Gaussian process classification by expectation propagation."""

from cavity import kernels
from cavity._version import __version__
from cavity.errors import BadInput, BadOption, CavityError, NotPositiveDefinite
from cavity.estimators import GPClassifier

__all__ = [
    "BadInput",
    "BadOption",
    "CavityError",
    "GPClassifier",
    "NotPositiveDefinite",
    "__version__",
    "kernels",
]
