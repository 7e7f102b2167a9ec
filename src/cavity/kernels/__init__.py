"""Kernels (covariance functions) and their registry. Each class has its own hyper-parameters, or all classes share them.

`formulas` does without torch, which is loaded with the first name of this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cavity.common.lazy import load_names

if TYPE_CHECKING:
    from cavity.kernels.base import Kernel as Kernel
    from cavity.kernels.base import KernelLike as KernelLike
    from cavity.kernels.base import Product as Product
    from cavity.kernels.base import Sum as Sum
    from cavity.kernels.library import KERNELS as KERNELS
    from cavity.kernels.linear import Constant as Constant
    from cavity.kernels.linear import Linear as Linear
    from cavity.kernels.stationary import RBF as RBF
    from cavity.kernels.stationary import Matern12 as Matern12
    from cavity.kernels.stationary import Matern32 as Matern32
    from cavity.kernels.stationary import Matern52 as Matern52
    from cavity.kernels.stationary import RationalQuadratic as RationalQuadratic
    from cavity.kernels.stationary import Stationary as Stationary
else:
    __getattr__, __all__, __dir__ = load_names(
        __name__,
        {
            "base": "Kernel KernelLike Product Sum",
            "library": "KERNELS",
            "linear": "Constant Linear",
            "stationary": "RBF Matern12 Matern32 Matern52 RationalQuadratic Stationary",
        },
    )
