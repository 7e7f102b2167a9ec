"""Kernels (covariance functions) and their registry. Each class has its own hyper-parameters, or all classes share them.

`formulas` does without torch, which is loaded with the first name of this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cavity.lazy import load_names

if TYPE_CHECKING:
    from cavity.kernels.library import (
        KERNELS,
        RBF,
        Constant,
        Deep,
        Kernel,
        KernelLike,
        Linear,
        Matern12,
        Matern32,
        Matern52,
        Product,
        Ranked,
        RationalQuadratic,
        Stationary,
        Sum,
        rank_columns,
    )

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

if not TYPE_CHECKING:
    __getattr__ = load_names(__name__, {"library": tuple(__all__)})
