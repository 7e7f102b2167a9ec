"""Tails of the normal in NumPy, which the ONNX graph shares, against SciPy's; and
triangular solves.
"""

import numpy as np
from scipy import special

from cavity.common.namespaces import NUMPY


def test_erfcx_and_erfc_are_accurate_everywhere():
    x = np.concatenate([np.linspace(-26.5, 30, 20_001), np.geomspace(30, 1e100, 500)])
    np.testing.assert_allclose(NUMPY.erfcx(x), special.erfcx(x), rtol=3e-14)
    assert np.isposinf(NUMPY.erfcx(np.array([-30.0, -1e5]))).all()
    x = np.linspace(-6, 26, 5001)
    np.testing.assert_allclose(NUMPY.erfc(x), special.erfc(x), rtol=2e-13)
    np.testing.assert_allclose(NUMPY.erf(x), special.erf(x), atol=1e-15)


def test_log_ndtr_is_accurate_in_both_tails():
    x = np.concatenate([np.linspace(-60, 8, 20_001), -np.geomspace(60, 1e100, 500)])
    np.testing.assert_allclose(
        NUMPY.log_ndtr(x), special.log_ndtr(x), rtol=1e-13, atol=2e-16
    )
    assert NUMPY.log_ndtr(np.array([50.0, 1e300])).tolist() == [0.0, 0.0]


def test_triangular_solves_are_those_of_the_factor():
    rng = np.random.default_rng(0)
    lower = np.tril(rng.normal(size=(3, 70, 70))) + 9 * np.eye(70)
    for B in (rng.normal(size=(3, 70, 5)), rng.normal(size=(1, 70, 2))):
        np.testing.assert_allclose(
            lower @ NUMPY.solve_lower(lower, B),
            np.broadcast_to(B, (3, *B.shape[1:])),
            atol=1e-12,
        )
        np.testing.assert_allclose(
            lower.swapaxes(1, 2) @ NUMPY.solve_lower_t(lower, B),
            np.broadcast_to(B, (3, *B.shape[1:])),
            atol=1e-12,
        )
