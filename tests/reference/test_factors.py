"""Laws of the kernels and of each factor's integral, before EP uses them."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr
from scipy.stats import norm

from .factors import power_moments
from .probit import hazard, power_derivatives, probit_derivatives
from .robust import (
    finite_differences,
    integrand_of,
    largest_probabilities,
    log_largest,
    rivals_of,
    robust_moments,
    step_derivatives,
)
from .tilted import bend

# --- kernels ---------------------------------------------------------------------------------------------
# --- one probit factor -----------------------------------------------------------------------------------
CASES = [
    (0.3, 1.2, 0.5),
    (-4.0, 0.7, 0.2),
    (6.0, 2.0, 0.1),
    (-1.0, 1e-3, 2.0),
    (0.5, 3.0, 1e-5),
    (-9.0, 1.0, 1e-3),
]


def tilted_by_quad(mean, var, r, power):
    """log Z, ⟨d⟩, Var d of Φ(d/√r)^p N(d; m, v), by adaptive quadrature around the
    tilted mode.
    """
    d = mean + np.sqrt(var) * np.linspace(
        -12, max(-mean / np.sqrt(var), 0) + 12, 100_001
    )
    log_g = power * log_ndtr(d / np.sqrt(r)) + norm.logpdf(d, mean, np.sqrt(var))
    mode, top = d[np.argmax(log_g)], log_g.max()
    width = np.sqrt(1 / (1 / var + min(1 / r, 1e3)))

    def raw(order):
        def g(x):
            log_gauss = -0.5 * (x - mean) ** 2 / var - 0.5 * math.log(2 * math.pi * var)
            return (x - mode) ** order * math.exp(
                power * log_ndtr(x / math.sqrt(r)) + log_gauss - top
            )

        near = np.clip(
            mode + width * np.array([-8, -4, -2, -1, 0, 1, 2, 4, 8]), d[0], d[-1]
        )
        points = np.unique([d[0], *near, 0.0, d[-1]])
        return sum(
            quad(g, a, b, epsabs=1e-14, epsrel=1e-12, limit=200)[0]
            for a, b in pairwise(points)
        )

    z, first, second = raw(0), raw(1), raw(2)
    return top + np.log(z), mode + first / z, second / z - (first / z) ** 2


def every_quadrature(case, power):
    """log Z, d₁, d₂ of one factor by Gauss–Legendre, by scipy's quad and by fixed
    panels.
    """
    columns = [np.array([x]) for x in (*case, power)]
    yield [float(x[0]) for x in power_derivatives(*columns)]
    yield power_moments(*case, power)
    yield power_moments(*case, power, adaptive=False)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("power", [0.25, 0.6, 1.0])
def test_derivatives_give_the_tilted_moments(case, power):
    mean, var, _ = case
    exact_log_z, exact_mean, exact_var = tilted_by_quad(*case, power)
    for log_z, d1, d2 in every_quadrature(case, power):
        assert log_z == pytest.approx(exact_log_z, abs=1e-9)
        assert mean + var * d1 == pytest.approx(exact_mean, abs=1e-8)
        assert var + var**2 * d2 == pytest.approx(exact_var, abs=1e-8)


@pytest.mark.parametrize("case", CASES)
def test_fixed_panels_of_a_power_are_as_good_as_adaptive_quadrature(case):
    _, exact, fast = every_quadrature(case, 0.4)
    np.testing.assert_allclose(fast, exact, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("case", CASES)
def test_power_one_is_the_closed_form(case):
    exact = [float(x[0]) for x in probit_derivatives(*(np.array([x]) for x in case))]
    for got in every_quadrature(case, 1.0):
        np.testing.assert_allclose(got, exact, rtol=1e-9, atol=1e-11)


# --- P(f_y largest) --------------------------------------------------------------------------------------
def wide(rng, C):
    """Means in ±50, variances in 1e-6…1e4."""
    return rng.uniform(-50, 50, C), 10 ** rng.uniform(-6, 4, C)


def everyday(rng, C):
    return rng.normal(size=C), 10 ** rng.uniform(-1.5, 0.5, C)


@pytest.mark.parametrize("adaptive, times", [(True, 5), (False, 80)])
def test_two_classes_are_the_closed_form_everywhere(adaptive, times):
    """S = Φ((m_y − m_k)/√(V_y + V_k)): log S from −3e9 to −1e-300, and its derivatives."""
    rng = np.random.default_rng(0)
    extremes = [
        ([-50, 50], [1e-6, 5e-7]),
        ([-40, 45], [1e-5, 10]),
        ([37, 0], [0.5, 0.5]),
        ([0, 9], [1e4, 1e-6]),
    ]
    for mean, var in [*extremes, *(wide(rng, 2) for _ in range(times))]:
        mean, var = np.array(mean, dtype=float), np.array(var)
        b = var.sum()
        alpha = (mean[0] - mean[1]) / np.sqrt(b)
        d1, d2 = hazard(alpha) / np.sqrt(b), -bend(alpha) / b
        got = robust_moments(0, mean, var, 0.0, adaptive)
        assert got.log_s == pytest.approx(log_ndtr(alpha), rel=1e-12, abs=1e-12)
        np.testing.assert_allclose(
            got.d1, [d1, -d1], rtol=1e-11, atol=1e-12 / np.sqrt(var.max())
        )
        np.testing.assert_allclose(got.d2 * var, d2 * var, rtol=0, atol=1e-11)
        np.testing.assert_allclose(
            got.dv, 0.5 * (d2 + d1**2), rtol=1e-10, atol=1e-12 / var.min()
        )


def test_equal_classes_are_equally_likely():
    for C in (2, 3, 50):
        assert np.exp(
            log_largest(1, np.full(C, 3.0), np.full(C, 0.2))
        ) == pytest.approx(1 / C, rel=1e-12)


@pytest.mark.parametrize("C", [3, 10])
def test_probabilities_add_up_to_one(C):
    rng = np.random.default_rng(C)
    rows = [
        everyday(rng, C),
        wide(rng, C),
        (rng.normal(size=C), 10 ** rng.uniform(-6, 4, C)),
    ]
    p = largest_probabilities(
        [m for m, _ in rows], [v for _, v in rows], adaptive=False
    )
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-11)
    robust = largest_probabilities([rows[0][0]], [rows[0][1]], 0.2, adaptive=False)
    np.testing.assert_allclose(robust[0], 0.8 * p[0] + 0.2 / C, atol=1e-12)


@pytest.mark.parametrize("C", [3, 8])
def test_fixed_panels_are_as_good_as_adaptive_quadrature(C):
    rng = np.random.default_rng(C)
    for mean, var in (everyday(rng, C), wide(rng, C)):
        exact, fast = (
            robust_moments(0, mean, var, 0.01, adaptive) for adaptive in (True, False)
        )
        assert fast.log_s == pytest.approx(exact.log_s, rel=1e-12)
        np.testing.assert_allclose(fast.d1, exact.d1, rtol=1e-9, atol=1e-13)
        np.testing.assert_allclose(fast.d2 * var, exact.d2 * var, atol=1e-11)
        np.testing.assert_allclose(fast.dv * var, exact.dv * var, rtol=1e-9, atol=1e-11)


def assert_finite_differences(
    y, mean, var, epsilon, adaptive=False, rtol=1e-8, atol=1e-9
):
    got = robust_moments(y, mean, var, epsilon, adaptive)
    expected = finite_differences(y, mean, var, epsilon)
    for a, b in zip((got.d1, got.d2, got.dv), expected[:3], strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
    if epsilon > 0:
        assert got.depsilon == pytest.approx(expected[3], rel=1e-8)
    return got


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.3])
@pytest.mark.parametrize("C", [2, 3, 5])
def test_derivatives_are_finite_differences(C, epsilon):
    rng = np.random.default_rng(C)
    for y in (0, C - 1):
        assert_finite_differences(y, *everyday(rng, C), epsilon)


def test_derivatives_by_adaptive_quadrature_are_finite_differences():
    assert_finite_differences(
        0, np.array([0.2, 0.9, -0.4]), np.array([0.5, 0.05, 2.0]), 0.02, adaptive=True
    )


def test_derivatives_are_finite_differences_in_the_tail():
    mean, var = np.array([-20.0, 9.0, 14.0, -1.0]), np.array([0.5, 0.4, 0.7, 2.0])
    assert assert_finite_differences(0, mean, var, 0.0, atol=1e-8).log_s < -300


def test_both_forms_of_the_second_derivative_agree():
    """S''/S of METHOD 4 is the centred form plus s'²."""
    for mean, var in (
        everyday(np.random.default_rng(8), 4),
        ([-9, 3, 4, 0], [0.5, 0.4, 0.7, 2.0]),
    ):
        first, second, raw = step_derivatives(
            integrand_of(0, mean, var), 0, 4, adaptive=False
        )
        np.testing.assert_allclose(second + first**2, raw, rtol=1e-10, atol=1e-12)
        assert list(rivals_of(2, 4)) == [0, 1, 3]
