"""How likely one normal is the largest: the quadrature, and the robust factors made of
it.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_ndtr

from cavity.engine.likelihoods.quadrature.rivals import win
from cavity.likelihoods import Latents, RobustBinary, RobustMax
from reference.probit import hazard
from reference.robust import mix, robust_moments
from reference.tilted import bend

means, log_variances = st.floats(-50, 50), st.floats(-6, 4)


def row(*values):
    return torch.tensor([values], dtype=torch.float64)


def close(got, exact, tol=1e-6):
    got, exact = np.asarray(got), np.asarray(exact)
    error = np.abs(got - exact) / np.maximum(1, np.abs(exact))
    assert error.max(initial=0) <= tol, (
        f"{error.max():.1e} at {error.argmax()}: {got} instead of {exact}"
    )


def assert_right(mean, var, adaptive=False):
    """Z to 1e-8; log Z, its first derivatives in means and variances and its second
    ones to 1e-6.
    """
    exact = robust_moments(0, np.asarray(mean), np.asarray(var), 0.0, adaptive)
    got = win(row(*mean), row(*var))
    value, first, second = (
        float(got.log_value),
        got.first[0].numpy(),
        got.second[0].numpy(),
    )
    assert math.exp(value) == pytest.approx(math.exp(exact.log_s), abs=1e-8)
    close(value, exact.log_s)
    close(first, exact.d1)
    close(0.5 * second, exact.dv)


def draw(data, C):
    mean = data.draw(st.lists(means, min_size=C, max_size=C))
    return np.array(mean), 10 ** np.array(
        data.draw(st.lists(log_variances, min_size=C, max_size=C))
    )


# --- the integral ----------------------------------------------------------------------------------------
@given(st.one_of(st.integers(2, 6), st.integers(2, 6), st.integers(7, 50)), st.data())
def test_rows_of_all_sizes_are_the_oracle_s(C, data):
    assert_right(*draw(data, C))


@pytest.mark.parametrize("C", [3, 6, 10])
def test_means_within_ten_and_variances_of_all_sizes_are_the_oracle_s_to_1e_7(C):
    """log S and its derivatives in means and variances, of rows that the short rule,
    the long one and panels resolve.
    """
    rng = np.random.default_rng(C)
    size = np.repeat([0.2, 1.0, 4.0], 8)[
        :, None
    ]  # powers of ten by which variances of a row differ
    mean = rng.uniform(-10, 10, (24, C))
    var = 10 ** (
        rng.uniform(size - 4, 4 - size, (24, 1)) + rng.uniform(-1, 1, (24, C)) * size
    )
    got = win(torch.tensor(mean), torch.tensor(var))
    for n in range(24):
        exact = robust_moments(0, mean[n], var[n], 0.0, adaptive=False)
        close(got.log_value[n], exact.log_s, 1e-7)
        close(got.first[n], exact.d1, 1e-7)
        close(0.5 * got.second[n], exact.dv, 1e-7)


HARD = {
    "a needle among wide ones": ([0.0, 0.0, 0.0], [1e-6, 1e4, 1e4]),
    "a wide one among needles": ([0.0, -1.0, 1.0], [1e4, 1e-6, 1e-6]),
    "far behind": ([-50.0, 50.0, 50.0], [1e-6, 1e-6, 1e4]),
    "far behind two needles": ([-50.0, 50.0, 49.9], [1.0, 1e-6, 1e-6]),
    "far ahead": ([50.0, -50.0, -50.0], [1e-6, 1e-6, 1e-6]),
    "ahead by a little": ([37.0, 0.0, 1.0], [0.5, 0.5, 0.5]),
    "a step far in the tail": ([0.0, 45.0, -45.0], [10.0, 1e-6, 1e4]),
    "a ladder of needles": ([0.0, *np.linspace(-3, 3, 12)], [4.0, *[1e-6] * 12]),
    "fifty alike": ([3.0] * 50, [0.2] * 50),
    "fifty needles in a row": ([0.0, *np.linspace(-2, 2, 49)], [1.0, *[1e-6] * 49]),
    "scales of all sizes": ([0.1, 0.2, -0.3, 0.4, 0.0], [1e-6, 1e-3, 1.0, 1e2, 1e4]),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_rows_are_the_oracle_s(name):
    assert_right(*HARD[name])


RATIOS = {
    1: (1.0, 1e-9),
    0.1: (1.0, 1e-9),
    0.01: (1.0, 1e-9),
    100: (0.1, 1e-9),
    1e-10: (1e4, 1e-6),
    1e10: (1e-6, 1e-6),
}


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("gap", [-50, -5, -0.3, 0, 0.3, 5, 50])
def test_two_classes_are_the_closed_form(gap, ratio):
    """S = Φ(α), α = (m_y − m_k)/√(V_y + V_k), V_k/V_y given."""
    own, tol = RATIOS[ratio]
    var = row(own, own * ratio)
    b = float(var.sum())
    alpha = gap / math.sqrt(b)
    beta = hazard(alpha)
    got = win(row(0.5 + gap, 0.5), var)
    close(got.log_value, log_ndtr(alpha), tol)
    close(got.first[0], [beta / math.sqrt(b), -beta / math.sqrt(b)], tol)
    close(got.second[0], [-beta * alpha / b] * 2, tol)


def test_equal_classes_are_equally_likely():
    for C in (2, 3, 17, 50):
        got = win(torch.full((1, C), 3.0).double(), torch.full((1, C), 0.2).double())
        assert float(got.log_value.exp()) == pytest.approx(1 / C, rel=1e-12)


def test_shifting_every_mean_changes_nothing():
    """The first derivatives of a row add up to zero."""
    rng = np.random.default_rng(0)
    for C in (2, 3, 8, 30):
        got = win(
            torch.tensor(rng.normal(size=(4, C))),
            torch.tensor(10 ** rng.uniform(-3, 2, (4, C))),
        )
        assert (got.first.sum(1).abs() <= 1e-9 * got.first.abs().max(1).values).all()


@pytest.mark.parametrize(
    ("C", "apart", "widest", "error"),
    [
        (20, 1, 1, {"rtol": 1e-12, "atol": 1e-14}),
        (5, 3, 3, {"rtol": 1e-13, "atol": 1e-300}),
    ],
)
def test_a_row_is_the_same_in_any_batch(C, apart, widest, error):
    """Also if the batch is cut into pieces (C = 20), and if other rows need another
    grid (C = 5).
    """
    rng = np.random.default_rng(0)
    mean = torch.tensor(apart * rng.normal(size=(60, C)))
    var = torch.tensor(10 ** rng.uniform(-3, widest, (60, C)))
    many = win(mean, var)
    for n in (0, 30, 59) if C == 20 else range(60):
        for a, b in zip(many, win(mean[n : n + 1], var[n : n + 1]), strict=True):
            torch.testing.assert_close(a[n : n + 1], b, **error)


# --- the factors -----------------------------------------------------------------------------------------
EPSILONS = [0, 1e-3, 0.1, 0.7]


def latents(C, B=6, seed=0):
    """Marginals at the sites of B rows, the own class first; a single site for two
    classes.
    """
    rng = np.random.default_rng(seed)
    S = 1 if C == 2 else C
    residual = rng.uniform(0.01, 1, (B, S))
    mean, var = (
        1.5 * rng.normal(size=(B, S)),
        10 ** rng.uniform(-1.5, 0.7, (B, S)) + residual,
    )
    return Latents(*(torch.tensor(x) for x in (mean, var, residual))), torch.tensor(
        np.arange(B) % C
    )


def factor(C, epsilon, learn=False):
    return RobustBinary(epsilon, learn) if C == 2 else RobustMax(C, epsilon, learn)


def exact(C, f, y, n, epsilon):
    """log S, log Z, ∂/∂m, ∂/∂v, ∂/∂ε of row n, the binary ones in closed form."""
    mean, var = f.mean[n].numpy(), f.var[n].numpy()
    if C > 2:
        z = robust_moments(0, mean, var, epsilon, adaptive=False)
        return z.log_s, z.log_z, z.d1, z.dv, z.depsilon
    sign = 2 * int(y[n]) - 1
    alpha = sign * mean / np.sqrt(var)
    log_s = float(log_ndtr(alpha[0]))
    log_z, kappa, depsilon = mix(log_s, epsilon, 2)
    first = sign * hazard(alpha) / np.sqrt(var)
    return (
        log_s,
        log_z,
        kappa * first,
        0.5 * kappa * (first**2 - bend(alpha) / var),
        depsilon,
    )


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("C", [2, 3, 5])
def test_moments_are_the_oracle_s(C, epsilon):
    """∂/∂ε as a derivative in its log-odds."""
    f, y = latents(C)
    got = factor(C, epsilon).moments(f, y, None)
    assert got.own is None and torch.equal(got.dv, got.dr)
    learnt = factor(C, epsilon, learn=True).moments(f, y, None) if epsilon else None
    for n in range(len(y)):
        _, log_z, dm, dv, depsilon = exact(C, f, y, n, epsilon)
        close(got.value[n], log_z, 1e-9)
        close(got.dm[n], dm, 1e-8)
        close(got.dv[n], dv, 1e-8)
        if learnt is not None:
            close(learnt.own[n], [depsilon * epsilon * (1 - epsilon)], 1e-8)


@pytest.mark.parametrize("epsilon", EPSILONS[1:])
@pytest.mark.parametrize("C", [2, 3, 5])
def test_the_average_is_the_oracle_s(C, epsilon):
    """E log p = S log(1−ε+ε/C) + (1−S) log(ε/C), and S' = S ∂ log S."""
    f, y = latents(C)
    got = factor(C, epsilon).average(f, y)
    hit, miss = math.log(1 - epsilon + epsilon / C), math.log(epsilon / C)
    for n in range(len(y)):
        log_s, _, dm, dv, _ = exact(C, f, y, n, 0.0)
        S = math.exp(log_s)
        close(got.value[n], hit * S + miss * (1 - S), 1e-9)
        close(got.dm[n], (hit - miss) * S * dm, 1e-8)
        close(got.dv[n], (hit - miss) * S * dv, 1e-8)


@pytest.mark.parametrize("C", [2, 3, 20])
def test_probabilities_mix_in_random_labels(C):
    """(1−ε) p + ε/C: none is below ε/C."""
    rng = np.random.default_rng(C)
    S = 1 if C == 2 else C
    mean, var = (
        torch.tensor(20 * rng.normal(size=(5, S))),
        torch.tensor(rng.uniform(0.1, 3, (5, S))),
    )
    plain, mixed = (factor(C, e).log_probability(mean, var).exp() for e in (0.0, 0.3))
    torch.testing.assert_close(mixed, 0.7 * plain + 0.3 / C, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(mixed.sum(1), torch.ones(5).double(), rtol=1e-12, atol=0)


def test_a_label_that_is_surely_wrong_gives_a_negative_precision():
    """d₂ = 2 ∂/∂v − d₁² > 0: the site takes precision away."""
    f = Latents(row(-6.0, 0.0, 0.0), row(1.0, 1.0, 1.0), row(0.1, 0.1, 0.1))
    got = RobustMax(3, 0.05).moments(f, torch.tensor([0]), None)
    assert float(2 * got.dv[0, 0] - got.dm[0, 0] ** 2) > 0
    assert got.value == pytest.approx(math.log(0.05 / 3), abs=1e-3)


def test_single_precision_is_that_of_its_inputs():
    rng = np.random.default_rng(0)
    mean, var = (
        torch.tensor(x, dtype=torch.float32)
        for x in (rng.normal(size=(9, 4)), rng.uniform(0.1, 3, (9, 4)))
    )
    for got, exact in zip(
        win(mean, var), win(mean.double(), var.double()), strict=True
    ):
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=1e-6)
