"""Gaussian tails that are accurate everywhere. [METHOD 10]"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cavity.common.namespaces import SQRT_2_OVER_PI as SQRT_2_OVER_PI
from cavity.common.namespaces import SQRT_HALF as SQRT_HALF
from cavity.common.namespaces import Array, namespace
from cavity.common.torch_namespace import constant as constant

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


def log_ndtr(x: Array) -> Array:
    """Return log Φ(x), accurate in both tails."""
    return namespace(x).log_ndtr(x)


def log_normal_pdf(z: Tensor) -> Tensor:
    """Return log φ(z) of the standard normal."""
    return -0.5 * z * z - LOG_SQRT_2PI


def hazard(alpha: Array) -> Array:
    r"""Return β(α) = φ(α)/Φ(α) = √(2/π) / erfcx(−α/√2), without overflow or cancellation."""
    return SQRT_2_OVER_PI / namespace(alpha).erfcx(-SQRT_HALF * alpha)


def hazard_slope(alpha: Array, beta: Array) -> Array:
    r"""Return −β'(α) = β(β+α), which lies in [0, 1]; a series avoids cancellation in the far left tail.

    β(β+α) ≈ 1 − α⁻² + 6α⁻⁴ − 50α⁻⁶ + 518α⁻⁸        α → −∞
    """
    xp, slope = namespace(alpha), beta * (beta + alpha)
    far = -10.0 if alpha.dtype == torch.float32 else -50.0
    if isinstance(alpha, Tensor) or xp.may_exceed(alpha, -far):  # a step on tensors reads no value
        left = xp.minimum(alpha, far)
        i2 = xp.reciprocal(left * left)
        series = 1 + i2 * (i2 * (i2 * (i2 * 518 - 50) + 6) - 1)
        slope = xp.where(alpha < far, series, slope)
    return xp.clip(slope, 0.0, 1.0)
