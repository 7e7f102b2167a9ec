"""Factors: where their sites sit, and derivatives that are those of their value."""

import numpy as np
import pytest
import torch

from cavity.likelihoods import BinaryProbit, Latents, ProbitPairs

FACTORS = {2: BinaryProbit(), 3: ProbitPairs(3), 5: ProbitPairs(5)}


def marginals(C, B=6, seed=0):
    """Latents at the sites of B rows, labels included; sites of one class share
    nothing.
    """
    rng = np.random.default_rng(seed)
    y = torch.tensor(np.arange(B) % C)
    S = FACTORS[C].sites(y).shape[1]
    mean, var, residual = (
        rng.normal(size=(B, S)),
        rng.uniform(0.1, 3, (B, S)),
        rng.uniform(0.01, 1, (B, S)),
    )
    return Latents(
        torch.tensor(mean), torch.tensor(var + residual), torch.tensor(residual)
    ), y


@pytest.mark.parametrize("C", [2, 3])
def test_a_mixture_of_weights_takes_each_row_s_own(C):
    """Rows of weight one are closed-form among light ones; nothing leaks between rows."""
    f, y = marginals(C)
    e = torch.tensor([1.0, 0.5, 1.0, 0.1, 1.0, 0.9]).double()
    mixed, plain = FACTORS[C].moments(f, y, e), FACTORS[C].moments(f, y, None)
    for a, b in zip(mixed[:4], plain[:4], strict=True):
        assert torch.equal(a[::2], b[::2])
    for i in (1, 3, 5):
        row = Latents(*(t[i : i + 1] for t in f))
        alone = FACTORS[C].moments(row, y[i : i + 1], e[i : i + 1])
        for a, b in zip(mixed[:4], alone[:4], strict=True):
            torch.testing.assert_close(a[i : i + 1], b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("mean", [-1e6, -300.0, -40.0, 40.0, 1e6])
@pytest.mark.parametrize("C", [2, 3])
def test_extreme_marginals_stay_finite(C, mean):
    f, y = marginals(C)
    f = f._replace(mean=f.mean * 0 + mean * torch.arange(1, f.mean.shape[1] + 1))
    got = FACTORS[C].moments(f, y, None)
    assert all(t.isfinite().all() for t in got[:4])
    if (
        mean > -1e6
    ):  # beyond, 2 ∂v − d₁² is a difference of numbers without common digits
        assert ((1 + f.var * (2 * got.dv - got.dm**2)) > -1e-9).all(), (
            "the tilted variance is not negative"
        )
