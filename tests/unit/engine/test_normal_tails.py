"""Gaussian tails against SciPy and a continued fraction, from −10⁶ to 40 in both
precisions.
"""

import numpy as np
import pytest
import torch
from scipy.special import erfcx
from scipy.special import log_ndtr as scipy_log_ndtr

from cavity.engine.likelihoods.normal_tails import hazard, hazard_slope, log_ndtr

POINTS = np.concatenate(
    [-np.logspace(6, -3, 500), [0.0], np.logspace(-3, np.log10(40), 200)]
)
PRECISIONS = [torch.float64, torch.float32]


def points(dtype):
    """The points as the tensor holds them, and that tensor."""
    x = torch.tensor(POINTS, dtype=dtype)
    return x.double().numpy(), x


def mills_slope(x):
    """β(β+α) at α = −x: 1/Mills ratio = x + 1/(x + 2/(x + 3/…)), so β + α needs no
    subtraction.
    """
    tail = np.zeros_like(x)
    for k in range(400, 1, -1):
        tail = k / (x + tail)
    gap = 1 / (x + tail)
    return (x + gap) * gap


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_log_ndtr(dtype):
    x, t = points(dtype)
    exact = scipy_log_ndtr(x)
    got = log_ndtr(t).double().numpy()
    near = x < (
        30 if dtype == torch.float64 else 4
    )  # beyond, log Φ is the probability of the other tail
    np.testing.assert_allclose(
        got[near], exact[near], rtol=1e-13 if dtype == torch.float64 else 3e-6
    )
    np.testing.assert_allclose(
        got, exact, rtol=1e-10 if dtype == torch.float64 else 1e-4, atol=1e-38
    )
    assert np.isfinite(got).all()


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_hazard(dtype):
    x, t = points(dtype)
    exact = np.sqrt(2 / np.pi) / erfcx(-x / np.sqrt(2))
    got = hazard(t).double().numpy()
    left = x < 5
    np.testing.assert_allclose(
        got[left], exact[left], rtol=1e-14 if dtype == torch.float64 else 5e-6
    )
    # to the right it is φ itself: its relative error is that of the exponent
    np.testing.assert_allclose(
        got, exact, rtol=1e-12 if dtype == torch.float64 else 2e-5, atol=1e-37
    )
    assert np.isfinite(got).all() and (got >= 0).all()


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_hazard_slope(dtype):
    x, t = points(dtype)
    beta = np.sqrt(2 / np.pi) / erfcx(-x / np.sqrt(2))
    exact = np.where(x < -1, mills_slope(np.maximum(-x, 1.0)), beta * (beta + x))
    got = hazard_slope(t, hazard(t)).double().numpy()
    np.testing.assert_allclose(
        got, exact, rtol=0, atol=2e-12 if dtype == torch.float64 else 3e-5
    )
    far = x < -50
    np.testing.assert_allclose(
        got[far], exact[far], rtol=0, atol=1e-13 if dtype == torch.float64 else 6e-8
    )
    assert (got >= 0).all() and (got <= 1).all()
