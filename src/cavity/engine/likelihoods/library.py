"""The registry with every likelihood of the library in it."""

# each module registers its classes
from cavity.engine.likelihoods import gaussian, probit, robust, softmax  # noqa: F401
from cavity.engine.likelihoods.base import LIKELIHOODS as LIKELIHOODS
