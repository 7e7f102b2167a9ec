"""Scaled squared distances and their derivatives against differences written out."""

import numpy as np
import pytest
import torch
from torch import Tensor

from cavity.kernels.distance import gaussian_pair, half_square_distance

C, M, N, D = 2, 4, 5, 3


def written_out(U: Tensor, V: Tensor, log_scale: Tensor) -> Tensor:
    """−½ Σ_d ((u_d − v_d)/ℓ_d)², [C M N]."""
    difference = (U[:, :, None] - V[:, None]) / log_scale.exp()[:, None, None]
    return -0.5 * difference.square().sum(-1)


def problem(offset: float, shared: bool, dtype=torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """U [C M D] and V [N D], half of the rows shifted far away, log ℓ and log σ²."""
    g = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    U, V = draw(1 if shared else C, M, D), draw(N, D)
    U[:, ::2] += offset * torch.tensor([1.0, -1.0, 0.5])
    V[::2] += offset * torch.tensor([1.0, -1.0, 0.5])
    parts = U, V, 0.3 * draw(C, D), 0.3 * draw(C)
    return tuple(part.to(dtype).requires_grad_() for part in parts)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_distances_and_derivatives_agree_with_differences(offset, shared) -> None:
    U, V, log_scale, log_variance = problem(offset, shared)
    weights = torch.linspace(-1, 1, C * M * N).double().reshape(C, M, N)
    square = torch.linspace(-1, 1, C * M * M).double().reshape(C, M, M)
    offset_of = log_variance[:, None, None]
    # cotangents at near pairs alone: at far ones the derivative itself is of the size of the offset
    near = written_out(U, V[None], log_scale).detach() > -100
    near_square = written_out(U, U.expand(C, -1, -1), log_scale).detach() > -100
    cases = [
        ((half_square_distance(U, V, log_scale),), (written_out(U, V[None], log_scale),)),
        ((half_square_distance(U, None, log_scale),), (written_out(U, U, log_scale),)),
    ]
    pairs = [(written_out(U, B, log_scale) + offset_of).exp() for B in (V[None], U)]
    center, unit = torch.linspace(-1, 1, V.shape[1]).double(), torch.linspace(0.5, 2, V.shape[1]).double()
    Z, X = (center + unit * points for points in (U, V))
    cases.append((gaussian_pair(Z, X, center, unit, log_scale, log_variance)[::-1], pairs))
    for i, (got, expected) in enumerate(cases):
        masks = [square * near_square] if i == 1 else [weights * near, square * near_square]
        inputs = [U, log_scale] if i == 1 else [U, V, log_scale]
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a.detach(), b.detach(), rtol=1e-8, atol=1e-9)
        grads = [
            torch.autograd.grad(out, inputs, masks[: len(out)], retain_graph=True) for out in (got, expected)
        ]
        for a, b in zip(*grads, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8 * float(b.abs().max()) + 1e-6)
