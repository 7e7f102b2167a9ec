"""The registry with every likelihood of the library in it."""

from cavity.likelihoods import (  # noqa: F401  each registers its classes
    gaussian,
    logistic_bounds,
    logistic_point,
    probit,
    robust,
    softmax,
)
from cavity.likelihoods.base import LIKELIHOODS as LIKELIHOODS
