"""One-dimensional integrals against the reference's quadrature around the integrand's mode."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr

from cavity.likelihoods.quadrature import argmax
from cavity.likelihoods.quadrature.argmax import MANY, log_argmax_probability
from cavity.likelihoods.quadrature.grid import bumps
from cavity.likelihoods.quadrature.power import RULES, probit_power
from reference.probit import hazard
from reference.robust import log_largest
from reference.tilted import averages, log_integral, tilt
from support import slow

# --- the largest of C normals --------------------------------------------------------------------------


def ours(mean, var):
    return log_argmax_probability(torch.tensor(mean)[None], torch.tensor(var)[None])[0].numpy()


def problems(C, kind, number):
    """Means and variances that are hard in one way each."""
    rng = np.random.default_rng([C, number])
    mean, var = rng.normal(size=C), np.ones(C)
    if kind == "alike":
        mean, var = 3 * mean, 10 ** rng.uniform(-1, 1, C)
    elif kind == "ratio 1e8":
        mean, var = 3 * mean, 10 ** rng.uniform(-8, 0, C)
    elif kind == "ratio 1e8, close":
        mean, var = 1e-3 * mean, 10 ** rng.uniform(-8, 0, C)
    elif kind == "few narrow":
        mean[:3], var[:3] = mean[:3] + 2, 1e-8
    elif kind == "few broad":
        var[3:] = 1e-6
    elif kind == "half and half":
        var[::2] = 1e-6
    elif kind == "narrow crowd below":  # most breakpoints lie where nothing happens
        mean[C // 4 :], var[C // 4 :] = 0.5, 1e-10
    return mean, var


KINDS = [
    "alike",
    "ratio 1e8",
    "ratio 1e8, close",
    "few narrow",
    "few broad",
    "half and half",
    "narrow crowd below",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("C", [2, 3, 6, MANY, MANY + 1, 30, 50])
def test_probability_of_being_the_largest(C, kind):
    atol = 1e-8 if C > MANY else 1e-10
    for number in range(2):
        mean, var = problems(C, kind, number)
        got = ours(mean, var)
        assert np.exp(got).sum() == pytest.approx(1, abs=C * atol)
        classes = np.unique(np.concatenate([got.argsort()[-3:], [got.argmin()]]))
        exact = np.array([log_largest(k, mean, var, adaptive=False) for k in classes])
        np.testing.assert_allclose(np.exp(got[classes]), np.exp(exact), rtol=0, atol=atol)
        seen = exact > -20
        np.testing.assert_allclose(got[classes][seen], exact[seen], rtol=1e-6, atol=atol)


@pytest.mark.parametrize("C", [2, 3, 16, 17, 50])
def test_equal_classes_share_equally(C):
    got = ours(np.full(C, 0.3), np.full(C, 2.0))
    np.testing.assert_allclose(np.exp(got), 1 / C, rtol=1e-7)


NEAR = list(product([0.0, 1.0, 3.0, 5.0], [1.0, 1e-2, 1e-4, 1e-8]))
FAR = list(product([10.0, 20.0, 30.0, 36.0], [1.0, 1e-1, 1e-2]))


@pytest.mark.parametrize(("distance", "ratio"), NEAR + FAR)
def test_two_classes_have_a_closed_form(distance, ratio):
    """P(f₁ > f₀) = Φ((m₁ − m₀)/√(v₀ + v₁)), whichever of the two is the narrow one.

    Far tails keep their logarithm, down to log p = −650: p itself is right to 0.1 %.
    """
    z = distance / math.sqrt(1 + ratio)
    error = {"rtol": 2e-8, "atol": 1e-10} if (distance, ratio) in NEAR else {"rtol": 0, "atol": 1e-3}
    for var in ([1.0, ratio], [ratio, 1.0]):
        got = ours(np.array([0.0, distance]), np.array(var))
        np.testing.assert_allclose(got, [log_ndtr(-z), log_ndtr(z)], **error)


@pytest.mark.parametrize("C", [3, 8, 16])
def test_far_tails_keep_their_logarithm(C):
    rng = np.random.default_rng(C)
    mean, var = np.linspace(-30, 0, C), rng.uniform(0.5, 1.5, C)
    exact = np.array([log_largest(k, mean, var, adaptive=False) for k in range(C)])
    assert exact.min() < -200
    np.testing.assert_allclose(ours(mean, var), exact, rtol=2e-7, atol=1e-10)


@pytest.mark.parametrize(("C", "decades"), [(3, 3), (6, 12), (10, 2), (17, 1), (30, 4), slow(50, 1)])
def test_far_tails_of_uneven_classes_keep_their_logarithm(C, decades):
    """Means of ±40 and variances of 10^±decades: log p is right to 0.1 % where p > 1e-300."""
    rng, seen, wrong = np.random.default_rng([C, decades]), 0, 0.0
    for _ in range(max(3, 60 // C)):
        mean, var = rng.uniform(-40, 40, C), 10 ** rng.uniform(-decades, decades, C)
        got = ours(mean, var)
        exact = np.array([log_largest(k, mean, var, adaptive=False) for k in range(C)])
        far = (exact < -20) & (exact > np.log(1e-300))
        seen += far.sum()
        wrong = max(wrong, np.abs(got / exact - 1)[far].max(initial=0.0))
        near = exact >= -20
        np.testing.assert_allclose(got[near], exact[near], rtol=1e-6, atol=1e-8)
        assert (got[exact < np.log(1e-300)] < np.log(1e-290)).all()
    assert seen >= 3 and wrong < 1e-3


@pytest.mark.parametrize(("C", "error"), [(50, 1e-7), (100, 1e-6), slow(300, 1e-4)])
def test_a_crowd_of_narrow_classes_does_not_hide_the_broad_ones(C, error):
    """Two broad classes and C − 2 narrow ones in one place, which has nearly all of the breakpoints."""
    mean, var = np.full(C, 0.5), np.full(C, 1e-8)
    mean[:2], var[:2] = 0.0, 1.0
    mean[2:] += 1e-4 * np.random.default_rng(0).normal(size=C - 2)
    got = ours(mean, var)
    classes = [0, 2, int(mean.argmax())]
    exact = [log_largest(k, mean, var, adaptive=False) for k in classes]
    np.testing.assert_allclose(np.exp(got[classes]), np.exp(exact), rtol=0, atol=error)


def test_rows_do_not_see_each_other():
    """A row alone and among others with more contenders: the same to 1e-10."""
    rng = np.random.default_rng(1)
    mean, var = torch.tensor(rng.normal(size=(20, 30))), torch.tensor(10 ** rng.uniform(-3, 1, (20, 30)))
    together = log_argmax_probability(mean, var).exp()
    alone = torch.cat(
        [log_argmax_probability(m[None], v[None]) for m, v in zip(mean, var, strict=True)]
    ).exp()
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-10)


# --- a power of the probit -----------------------------------------------------------------------------


def power_by_quad(mean, var, residual, e):
    """log ∫ Φ(d/√R)^e N(d; μ, V) dd and its derivatives in μ, V, R: averages under the normalised integrand."""
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
    return [float(x) for x in probit_power(*(torch.tensor([v], dtype=torch.float64) for v in values))]


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
    assert got[2] == pytest.approx(exact[2], rel=1e-6, abs=1e-9 * e / residual + 1e-6 * exact[1] ** 2)
    assert got[3] == pytest.approx(exact[3], rel=1e-6, abs=1e-10 * e / residual)


def test_probit_power_at_random():
    rng = np.random.default_rng(3)
    for _ in range(20):
        var, e = 10 ** rng.uniform(-3, 3), 10 ** rng.uniform(-4, 0)
        residual = var * 10 ** rng.uniform(-9, 9)
        mean = rng.uniform(-40, 40) * rng.uniform() * math.sqrt(var + residual)
        got, exact = power(mean, var, residual, e), power_by_quad(mean, var, residual, e)
        assert got[0] == pytest.approx(exact[0], rel=1e-9, abs=1e-9)
        assert got[1] == pytest.approx(exact[1], rel=1e-6, abs=1e-10 / math.sqrt(var))
        assert got[3] == pytest.approx(exact[3], rel=1e-6, abs=1e-10 * e / residual)


@pytest.mark.parametrize("case", CASES[:5])
def test_probit_power_derivatives_are_those_of_its_value(case):
    got = power(*case)
    for place, slope in enumerate(got[1:]):
        h = 1e-4 * (1.0 if place == 0 else case[place])
        up, down = [list(case), list(case)]
        up[place], down[place] = case[place] + h, case[place] - h
        difference = (power(*up)[0] - power(*down)[0]) / (2 * h)
        assert slope == pytest.approx(difference, rel=2e-6, abs=1e-8)


@settings(phases=[Phase.generate])
@given(
    st.sampled_from([rule.least for rule in RULES]),
    st.floats(0, 1),
    st.floats(-5, 5),
    st.floats(-2, 2),
    st.floats(-15, 6).map(lambda alpha: round(alpha, 9)),  # the reference fails at means such as 1e-241
)
def test_short_rules_keep_ten_digits(least, share, log_ratio, log_var, alpha):
    """Each rule against adaptive quadrature, for exponents from its least one to 1; derivatives in units of √(V + R) and of R."""
    e, var = least ** (1 - share), 10**log_var
    residual = var * 10**log_ratio
    mean = alpha * math.sqrt(var + residual)
    inputs = (torch.tensor([v], dtype=torch.float64) for v in (mean, var, residual, e))
    got, exact = probit_power(*inputs, least), power_by_quad(mean, var, residual, e)
    scales = (1, math.sqrt(var + residual), residual, residual)
    for value, expected, scale in zip(got, exact, scales, strict=True):
        assert scale * float(value) == pytest.approx(scale * expected, rel=1e-10, abs=1e-10)


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


def test_probit_power_one_is_the_closed_form():
    mean, var, residual = 0.4, 1.3, 0.2
    alpha = mean / math.sqrt(var + residual)
    got = power(mean, var, residual, 1.0)
    assert got[0] == pytest.approx(log_ndtr(alpha), rel=1e-10)
    assert got[1] == pytest.approx(hazard(alpha) / math.sqrt(var + residual), rel=1e-9)
    dv = -0.5 * hazard(alpha) * alpha / (var + residual)
    assert got[2] == pytest.approx(dv, rel=1e-8) and got[3] == pytest.approx(dv, rel=1e-8)


def test_a_weightless_factor_says_nothing():
    value, dm, dv, dr = power(-2.0, 1.0, 0.5, 1e-12)
    assert abs(value) < 1e-10 and abs(dm) < 1e-10 and abs(dv) < 1e-10 and abs(dr) < 1e-10


@pytest.mark.parametrize("C", [2, 3, 10, 16])
@pytest.mark.parametrize("spread", [1.0, 8.0, 30.0])
def test_short_grids_are_as_good_as_many_times_longer_ones(C, spread):
    """Variances over three decades; log p where p is more than rounding."""
    generator = torch.Generator().manual_seed(C)
    mean = spread * torch.randn(60, C, dtype=torch.float64, generator=generator)
    sd = 10 ** (1.5 * torch.rand(60, C, dtype=torch.float64, generator=generator) - 0.75)
    edges = bumps(mean, sd)
    steps = torch.linspace(0, 1, 7, dtype=torch.float64)[:-1]
    fine = torch.cat(
        [(edges[:, :-1, None] + edges.diff(dim=1)[..., None] * steps).flatten(1), edges[:, -1:]], 1
    )
    exact, got = argmax._integrate(mean, sd, fine), log_argmax_probability(mean, sd.square())
    torch.testing.assert_close(got.exp(), exact.exp(), rtol=0, atol=1e-11)
    torch.testing.assert_close(got[exact > -30], exact[exact > -30], rtol=0, atol=1e-7)


def test_the_grid_of_a_row_is_its_own():
    generator = torch.Generator().manual_seed(0)
    mean = 10 * torch.randn(40, 6, dtype=torch.float64, generator=generator)
    var = 10 ** (2 * torch.rand(40, 6, dtype=torch.float64, generator=generator) - 1)
    alone = torch.cat([log_argmax_probability(mean[i : i + 1], var[i : i + 1]) for i in range(40)])
    torch.testing.assert_close(log_argmax_probability(mean, var), alone, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("C", [5, MANY + 4])
def test_rows_may_have_further_axes(C):
    generator = torch.Generator().manual_seed(0)
    mean = 3 * torch.randn(2, 3, C, dtype=torch.float64, generator=generator)
    var = torch.rand(2, 3, C, dtype=torch.float64, generator=generator) + 0.1
    flat = log_argmax_probability(mean.reshape(6, C), var.reshape(6, C))
    torch.testing.assert_close(log_argmax_probability(mean, var), flat.reshape(2, 3, C), rtol=0, atol=0)


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
        probit_power(*inputs, rule.least), (log_ndtr(alpha), beta / np.sqrt(b), dv, dv), strict=True
    ):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-13)
