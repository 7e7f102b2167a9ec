"""The registry with every likelihood of the library in it."""

from cavity.engine.likelihoods import (  # noqa: F401  each registers its classes
    gaussian,
    logistic_bounds,
    probit,
    robust,
    softmax,
)
from cavity.engine.likelihoods.base import LIKELIHOODS as LIKELIHOODS
