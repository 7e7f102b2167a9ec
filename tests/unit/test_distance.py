"""Scaled squared distances, also far from the centre, and their derivatives against differences written out."""

import numpy as np
import pytest
import torch
from torch import Tensor

from cavity.kernels.distance import FAR, half_square_distance

C, M, N, D = 2, 4, 5, 3


def written_out(U: Tensor, V: Tensor, log_scale: Tensor) -> Tensor:
    """−½ Σ_d ((u_d − v_d)/ℓ_d)², [C M N]."""
    difference = (U[:, :, None] - V[:, None]) / log_scale.exp()[:, None, None]
    return -0.5 * difference.square().sum(-1)


def problem(offset: float, shared: bool, dtype=torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """U [C M D] and V [N D], half of the rows shifted far away, and log ℓ."""
    g = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    U, V = draw(1 if shared else C, M, D), draw(N, D)
    U[:, ::2] += offset * torch.tensor([1.0, -1.0, 0.5])
    V[::2] += offset * torch.tensor([1.0, -1.0, 0.5])
    parts = U, V, 0.3 * draw(C, D)
    return tuple(part.to(dtype).requires_grad_() for part in parts)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e5, 1e7, 1e9])
def test_distances_and_derivatives_agree_with_differences(offset, shared) -> None:
    U, V, log_scale = problem(offset, shared)
    for other in (V, None):
        got = half_square_distance(U, other, log_scale)
        expected = written_out(U, U.expand(C, -1, -1) if other is None else V[None], log_scale)
        np.testing.assert_allclose(got.detach(), expected.detach(), rtol=1e-8, atol=1e-9)
        if offset > 1e3:  # the derivatives are those of the product
            continue
        # cotangents at near pairs alone: at far ones the derivative itself is of the size of the offset
        cotangent = torch.linspace(-1, 1, got.numel()).double().reshape(got.shape) * (expected > -100)
        inputs = [U, log_scale] if other is None else [U, V, log_scale]
        for a, b in zip(*(torch.autograd.grad(x, inputs, cotangent) for x in (got, expected)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8 * float(b.abs().max()) + 1e-6)


def test_single_precision_uses_differences_sooner() -> None:
    U, V, log_scale = problem(FAR[torch.float32] * 4, False, torch.float32)
    got = half_square_distance(U, V, log_scale)
    expected = written_out(U, V[None], log_scale)
    near = expected > -100
    np.testing.assert_allclose(got[near].detach(), expected[near].detach(), rtol=2e-3)
