"""Linear functions that fade."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from cavity.common.column_statistics import summarize
from cavity.engine.kernels.linear import Linear


def bound_kernel(fades: bool, D: int = 3) -> Linear:
    rng = np.random.default_rng(0)
    kernel = Linear(fades=fades)
    kernel.bind(1, summarize(rng.normal(size=(200, D)) * 3 + 1, np.ones(200), rng))
    return kernel


def test_a_fading_kernel_is_the_linear_one_at_training_rows():
    rows = torch.tensor(np.random.default_rng(0).normal(size=(200, 3)) * 3 + 1)
    fading, plain = bound_kernel(True), bound_kernel(False)
    torch.testing.assert_close(
        fading.cross(rows[None, :50], rows),
        plain.cross(rows[None, :50], rows),
        rtol=0,
        atol=0,
    )
    torch.testing.assert_close(fading.diag(rows), plain.diag(rows), rtol=1e-15, atol=0)


@given(st.integers(0, 1000))
def test_a_fading_kernel_is_positive_definite_and_knows_nothing_far_away(seed):
    """Rows at every distance: covariances and variances belong to one Gaussian process,
    and far rows are independent noise.
    """
    rng = np.random.default_rng(seed)
    rows = torch.tensor(
        rng.normal(size=(12, 3)) * np.exp(rng.uniform(-1, 4, size=(12, 1))) + 1
    )
    kernel = bound_kernel(True)
    K = kernel.cross(rows[None], rows)[0]
    variance = kernel.diag(rows)[0]
    assert (variance >= K.diagonal() * (1 - 1e-12)).all()
    whole = K + torch.diag(variance - K.diagonal())
    assert torch.linalg.eigvalsh(whole).min() >= -1e-9 * variance.max()
    direction = torch.tensor(rng.normal(size=(1, 3)))
    far = kernel.cross(rows[None], direction / direction.norm() * 1e3)
    assert far.abs().max() < 1e-12 * variance.max()
