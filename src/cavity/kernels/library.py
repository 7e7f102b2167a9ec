"""The registry with every kernel of the library in it."""

from cavity.kernels import linear, stationary  # noqa: F401  each registers its classes
from cavity.kernels.base import KERNELS as KERNELS
