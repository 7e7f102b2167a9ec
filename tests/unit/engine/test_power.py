"""Averages of powers of the probit against the reference's quadrature around the
integrand's mode.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr

from cavity.engine.likelihoods.quadrature.power import RULES, probit_power
from reference.probit import hazard
from reference.tilted import averages, log_integral, tilt


def power_by_quad(mean, var, residual, e):
    """log ∫ Φ(d/√R)^e N(d; μ, V) dd and its derivatives in μ, V, R: averages under the
    normalised integrand.
    """
    t = tilt(mean, var, [0.0], [residual], e)
    slope = lambda p: e * p.h[..., 0] / math.sqrt(residual)
    first, second, along_r = averages(
        t,
        [
            slope,
            lambda p: slope(p) ** 2 - e * p.bend[..., 0] / residual,
            lambda p: -0.5 * e * p.h[..., 0] * p.z[..., 0] / residual,
        ],
    )
    return log_integral(t), first, 0.5 * second, along_r


def power(*values):
    return [
        float(x)
        for x in probit_power(*(torch.tensor([v], dtype=torch.float64) for v in values))
    ]


CASES = [
    (0.3, 1.2, 0.5, 0.7),
    (-4.0, 0.7, 0.2, 0.3),
    (6.0, 2.0, 0.1, 0.5),
    (-1.0, 1e-3, 2.0, 0.9),
    (-9.0, 1.0, 1e-3, 0.05),
    (0.5, 3.0, 1e-5, 1e-4),
    (3.3, 438.0, 2e-6, 3.4e-4),  # broad, with a shoulder √(R/e) wide at 0
    (-13.7, 0.6, 3e-9, 0.5),  # a narrow peak at the edge of a tail
    (-0.01, 6e3, 1e-8, 3e-3),
    (2.0, 1e-12, 1.0, 0.4),  # nearly a point mass
    (-30.0, 1.0, 1e4, 0.2),
]


@pytest.mark.parametrize("case", CASES)
def test_probit_power(case):
    _, var, residual, e = case
    got, exact = power(*case), power_by_quad(*case)
    assert got[0] == pytest.approx(exact[0], rel=1e-9, abs=1e-9)
    assert got[1] == pytest.approx(exact[1], rel=1e-7, abs=1e-10 / math.sqrt(var))
    # ⟨g'' + g'²⟩ is a difference: what it is made of sets the scale
    assert got[2] == pytest.approx(
        exact[2], rel=1e-6, abs=1e-9 * e / residual + 1e-6 * exact[1] ** 2
    )
    assert got[3] == pytest.approx(exact[3], rel=1e-6, abs=1e-10 * e / residual)


@settings(phases=[Phase.generate])
@given(
    st.sampled_from([rule.least for rule in RULES]),
    st.floats(0, 1),
    st.floats(-5, 5),
    st.floats(-2, 2),
    st.floats(-15, 6).map(
        lambda alpha: round(alpha, 9)
    ),  # the reference fails at means such as 1e-241
)
def test_short_rules_keep_ten_digits(least, share, log_ratio, log_var, alpha):
    """Each rule against adaptive quadrature, for exponents from its least one to 1;
    derivatives in units of √(V + R) and of R.
    """
    e, var = least ** (1 - share), 10**log_var
    residual = var * 10**log_ratio
    mean = alpha * math.sqrt(var + residual)
    inputs = (torch.tensor([v], dtype=torch.float64) for v in (mean, var, residual, e))
    got, exact = probit_power(*inputs, least), power_by_quad(mean, var, residual, e)
    scales = (1, math.sqrt(var + residual), residual, residual)
    for value, expected, scale in zip(got, exact, scales, strict=True):
        assert scale * float(value) == pytest.approx(
            scale * expected, rel=1e-10, abs=1e-10
        )


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.least))
def test_short_rules_agree_with_long_ones(rule):
    """On many cases, against the rule for any exponent, whose own error is 4e-10."""
    rng = np.random.default_rng(4)
    e, var = rule.least ** rng.uniform(0, 1, 500), 10 ** rng.uniform(-2, 2, 500)
    residual = var * 10 ** rng.uniform(-6, 6, 500)
    mean = rng.normal(size=500) * 6 * np.sqrt(var + residual)
    inputs = [torch.tensor(v) for v in (mean, var, residual, e)]
    scales = (1, inputs[1].add(inputs[2]).sqrt(), inputs[2], inputs[2])
    for short, long, scale in zip(
        probit_power(*inputs, rule.least), probit_power(*inputs), scales, strict=True
    ):
        torch.testing.assert_close(scale * short, scale * long, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.least))
def test_short_rules_add_nothing_to_the_closed_form_at_exponent_one(rule):
    rng = np.random.default_rng(0)
    mean, (var, residual) = rng.normal(0, 20, 300), 10 ** rng.uniform(-2, 2, (2, 300))
    b = var + residual
    alpha = mean / np.sqrt(b)
    beta = hazard(alpha)
    dv = -0.5 * beta * alpha / b
    inputs = (torch.tensor(x) for x in (mean, var, residual, np.ones(300)))
    for x, y in zip(
        probit_power(*inputs, rule.least),
        (log_ndtr(alpha), beta / np.sqrt(b), dv, dv),
        strict=True,
    ):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-13)
