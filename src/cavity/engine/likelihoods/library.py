"""The registry with every likelihood of the library in it."""

# each module registers its classes
from cavity.engine.likelihoods import (  # noqa: F401
    gaussian,
    logistic_bounds,
    ordinal,
    probit,
    robust,
    softmax,
)
from cavity.engine.likelihoods.base import LIKELIHOODS as LIKELIHOODS
