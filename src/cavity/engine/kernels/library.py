"""The registry with every kernel of the library in it."""

from cavity.engine.kernels import linear, stationary  # noqa: F401  each registers its classes
from cavity.engine.kernels.base import KERNELS as KERNELS
