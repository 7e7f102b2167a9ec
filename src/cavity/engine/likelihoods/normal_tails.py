"""Gaussian tails that are accurate everywhere. [METHOD 10]"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cavity.common.namespaces import SQRT_2_OVER_PI, SQRT_HALF

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
log_ndtr = torch.special.log_ndtr  # log Φ(x), accurate in both tails


def log_normal_pdf(z: Tensor) -> Tensor:
    """Return log φ(z) of the standard normal."""
    return -0.5 * z * z - LOG_SQRT_2PI


def hazard(alpha: Tensor) -> Tensor:
    r"""Return β(α) = φ(α)/Φ(α), without overflow or cancellation.

    β(α) = √(2/π) / erfcx(−α/√2)
    """
    return SQRT_2_OVER_PI / torch.special.erfcx(-SQRT_HALF * alpha)


def hazard_slope(alpha: Tensor, beta: Tensor) -> Tensor:
    r"""Return −β'(α) = β(β+α), which lies in [0, 1].

    A series avoids cancellation in the far left tail:

        β(β+α) ≈ 1 − α⁻² + 6α⁻⁴ − 50α⁻⁶ + 518α⁻⁸        α → −∞
    """
    far = -10.0 if alpha.dtype == torch.float32 else -50.0
    i2 = alpha.clamp(max=far).square().reciprocal()
    series = 1 + i2 * (i2 * (i2 * (i2 * 518 - 50) + 6) - 1)
    return torch.where(alpha < far, series, beta * (beta + alpha)).clamp(0.0, 1.0)
