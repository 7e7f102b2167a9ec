"""Kernels (covariance functions) and their registry.

Classes have hyper-parameters of their own or share them.
"""

from typing import TYPE_CHECKING

from cavity.common.removed import explain_removed
from cavity.engine.kernels.base import Kernel, KernelLike, Product, Sum
from cavity.engine.kernels.library import KERNELS
from cavity.engine.kernels.linear import Constant, Linear
from cavity.engine.kernels.periodic import Periodic
from cavity.engine.kernels.stationary import (
    RBF,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    Stationary,
)
from cavity.engine.parameters import Bounded, Fixed, Gamma, LogNormal, Normal

__all__ = [
    "KERNELS",
    "RBF",
    "Bounded",
    "Constant",
    "Fixed",
    "Gamma",
    "Kernel",
    "KernelLike",
    "Linear",
    "LogNormal",
    "Matern12",
    "Matern32",
    "Matern52",
    "Normal",
    "Periodic",
    "Product",
    "RationalQuadratic",
    "Stationary",
    "Sum",
]

if not TYPE_CHECKING:
    __getattr__ = explain_removed(__name__)
