"""Kernels (covariance functions) and their registry.

Each class has its own hyper-parameters, or all classes share them. The first name of
this package loads torch; `formulas` does not need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cavity.common.lazy import load_names

if TYPE_CHECKING:
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
else:
    __getattr__, __all__, __dir__ = load_names(
        __name__,
        {
            "base": "Kernel KernelLike Product Sum",
            "library": "KERNELS",
            "linear": "Constant Linear",
            "periodic": "Periodic",
            "stationary": "RBF Matern12 Matern32 Matern52 RationalQuadratic Stationary",
        },
    )
