"""The registry with every kernel of the library in it."""

# each module registers its classes
from cavity.engine.kernels import linear, periodic, stationary  # noqa: F401
from cavity.engine.kernels.base import KERNELS as KERNELS
