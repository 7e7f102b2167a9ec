"""Tails of the normal in NumPy against SciPy's."""

import numpy as np
from scipy import special

from cavity.common import array_tails


def test_erfcx_is_accurate_everywhere():
    x = np.concatenate([np.linspace(-26.5, 30, 20_001), np.geomspace(30, 1e200, 500)])
    np.testing.assert_allclose(array_tails.erfcx(x), special.erfcx(x), rtol=5e-14)
    assert np.isposinf(array_tails.erfcx(np.array([-30.0, -1e5]))).all()


def test_log_ndtr_is_accurate_in_both_tails():
    x = np.concatenate([np.linspace(-60, 37, 20_001), -np.geomspace(60, 1e150, 500)])
    np.testing.assert_allclose(array_tails.log_ndtr(x), special.log_ndtr(x), rtol=1e-13)
    assert array_tails.log_ndtr(np.array([50.0, np.inf])).tolist() == [0.0, 0.0]
