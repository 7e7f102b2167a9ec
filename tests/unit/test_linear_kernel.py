"""The linear kernel's closed-form pair: equal to autograd's of the definition, whatever classes share."""

import pytest
import torch

from cavity.kernels.linear import linear_pair


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
