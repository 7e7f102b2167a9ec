"""Every kernel of the library: importing this module registers them all."""

from cavity.kernels.base import KERNELS, Kernel, Product, Sum
from cavity.kernels.deep import Deep
from cavity.kernels.linear import Constant, Linear
from cavity.kernels.protocol import KernelLike
from cavity.kernels.ranked import Ranked, rank_columns
from cavity.kernels.stationary import RBF, Matern12, Matern32, Matern52, RationalQuadratic, Stationary

__all__ = [
    "KERNELS",
    "RBF",
    "Constant",
    "Deep",
    "Kernel",
    "KernelLike",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "Product",
    "Ranked",
    "RationalQuadratic",
    "Stationary",
    "Sum",
    "rank_columns",
]
