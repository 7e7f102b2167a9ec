"""Scaled squared distances and their derivatives against differences written out."""

import numpy as np
import pytest
import torch
from torch import Tensor

from cavity.engine.kernels.distance import half_square_distance

C, M, N, D = 2, 4, 5, 3


def written_out(U: Tensor, V: Tensor, log_scale: Tensor) -> Tensor:
    """−½ Σ_d ((u_d − v_d)/ℓ_d)², [C M N]."""
    difference = (U[:, :, None] - V[:, None]) / log_scale.exp()[:, None, None]
    return -0.5 * difference.square().sum(-1)


def problem(
    offset: float, shared: bool, dtype=torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
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
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_distances_and_derivatives_agree_with_differences(offset, shared) -> None:
    U, V, log_scale = problem(offset, shared)
    weights = torch.linspace(-1, 1, C * M * N).double().reshape(C, M, N)
    square = torch.linspace(-1, 1, C * M * M).double().reshape(C, M, M)
    # cotangents at near pairs alone: at far ones the derivative itself is of the size
    # of the offset
    near = written_out(U, V[None], log_scale).detach() > -100
    near_square = written_out(U, U.expand(C, -1, -1), log_scale).detach() > -100
    for other, mask in ((V, weights * near), (None, square * near_square)):
        got, expected = (
            half_square_distance(U, other, log_scale),
            written_out(U, U if other is None else V[None], log_scale),
        )
        np.testing.assert_allclose(
            got.detach(), expected.detach(), rtol=1e-8, atol=1e-9
        )
        inputs = [U, log_scale, *([] if other is None else [V])]
        for a, b in zip(
            *(torch.autograd.grad(out, inputs, mask) for out in (got, expected)),
            strict=True,
        ):
            np.testing.assert_allclose(
                a, b, rtol=1e-7, atol=1e-8 * float(b.abs().max()) + 1e-6
            )
