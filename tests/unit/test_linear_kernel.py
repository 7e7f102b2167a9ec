"""The linear kernel's closed-form pair, equal to autograd's of the definition; linear functions that fade."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cavity.common.column_statistics import summarize
from cavity.kernels.linear import Linear, linear_pair


@pytest.mark.parametrize("points, weights", [(3, 3), (1, 3), (3, 1), (1, 1)])
def test_value_and_gradient_of_the_pair_are_those_of_the_definition(points, weights):
    rng = torch.Generator().manual_seed(0)
    sizes = [(points, 5, 4), (7, 4), (weights, 4)]
    arguments = [torch.randn(*size, generator=rng, dtype=torch.float64, requires_grad=True) for size in sizes]
    U, V, log_weight = arguments
    weight = log_weight.exp()[:, None]
    definition = (
        torch.einsum("cmd,cnd->cmn", U * weight, U.expand(max(points, weights), -1, -1)),
        torch.einsum("cmd,nd->cmn", U * weight, V),
    )
    pair = linear_pair(U, V, log_weight)
    cotangents = [torch.randn(*x.shape, generator=rng, dtype=torch.float64) for x in pair]
    for found, expected in zip(pair, definition, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)
    expected = torch.autograd.grad(definition, arguments, cotangents)
    for found, wanted in zip(torch.autograd.grad(pair, arguments, cotangents), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def bound_kernel(fades: bool, D: int = 3) -> Linear:
    rng = np.random.default_rng(0)
    kernel = Linear(fades=fades)
    kernel.bind(1, summarize(rng.normal(size=(200, D)) * 3 + 1, np.ones(200), rng))
    return kernel


def test_a_fading_kernel_is_the_linear_one_at_training_rows():
    rows = torch.tensor(np.random.default_rng(0).normal(size=(200, 3)) * 3 + 1)
    fading, plain = bound_kernel(True), bound_kernel(False)
    torch.testing.assert_close(
        fading.cross(rows[None, :50], rows), plain.cross(rows[None, :50], rows), rtol=0, atol=0
    )
    torch.testing.assert_close(fading.diag(rows), plain.diag(rows), rtol=1e-15, atol=0)


@given(st.integers(0, 1000))
def test_a_fading_kernel_is_positive_definite_and_knows_nothing_far_away(seed):
    """Rows at every distance: covariances and variances belong to one Gaussian process, and far rows are independent noise."""
    rng = np.random.default_rng(seed)
    rows = torch.tensor(rng.normal(size=(12, 3)) * np.exp(rng.uniform(-1, 4, size=(12, 1))) + 1)
    kernel = bound_kernel(True)
    K = kernel.cross(rows[None], rows)[0]
    variance = kernel.diag(rows)[0]
    assert (variance >= K.diagonal() * (1 - 1e-12)).all()
    whole = K + torch.diag(variance - K.diagonal())
    assert torch.linalg.eigvalsh(whole).min() >= -1e-9 * variance.max()
    direction = torch.tensor(rng.normal(size=(1, 3)))
    far = kernel.cross(rows[None], direction / direction.norm() * 1e3)
    assert far.abs().max() < 1e-12 * variance.max()
