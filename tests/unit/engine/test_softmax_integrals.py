"""Averages of log softmax, log σ and log Φ over normals, against the trapezoidal rule,
Hermite's rule and scipy's quad.
"""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import expit, log_expit, log_ndtr, logsumexp, ndtri
from scipy.stats import qmc

from cavity.engine.likelihoods.quadrature.correlated import (
    log_softmax_probability,
    softmax_uncertainty,
)
from cavity.engine.likelihoods.quadrature.power import probit_average
from cavity.engine.likelihoods.quadrature.softmax_integrals import (
    log_sigmoid_probability,
    sigmoid_average,
    softmax_average,
)
from cavity.likelihoods import Latents, Softmax
from reference.probit import hazard
from reference.tilted import bend
from reference.variational import Whitened, expected_softmax
from support import slow


def row(*values):
    return torch.tensor([values], dtype=torch.float64)


# --- softmax ---------------------------------------------------------------------------------------------
def by_trapezoids(mean, var, nodes):
    """E log Σ exp f, its derivatives E softmax and ½ E π(1−π): a product rule,
    exponentially right for sd ≤ 3.
    """
    z = np.linspace(-9, 9, nodes)
    weight = np.exp(-0.5 * z * z) / np.exp(-0.5 * z * z).sum()
    C = len(mean)
    grid = np.stack(np.meshgrid(*[z] * C, indexing="ij"), -1).reshape(-1, C)
    weights = np.prod(
        np.stack(np.meshgrid(*[weight] * C, indexing="ij"), -1).reshape(-1, C), axis=1
    )
    f = mean + np.sqrt(var) * grid
    total = logsumexp(f, axis=1)
    p = np.exp(f - total[:, None])
    return weights @ total, weights @ p, 0.5 * weights @ (p * (1 - p))


@pytest.mark.parametrize(("C", "nodes"), [(2, 300), (3, 72), (4, 32)])
def test_the_softmax_is_that_of_a_product_rule(C, nodes):
    """Standard deviations up to 3: to 1e-6, derivatives too."""
    rng = np.random.default_rng(C)
    for _ in range(2 if C == 4 else 8):
        mean, sd = 3 * rng.normal(size=C), rng.uniform(0.01, 3 if C < 4 else 2, C)
        value, dm, dv = by_trapezoids(mean, sd**2, nodes)
        got = softmax_average(row(*mean), row(*sd**2))
        assert float(got.value) == pytest.approx(value, abs=1e-6)
        np.testing.assert_allclose(got.dm[0], dm, rtol=0, atol=1e-6)
        np.testing.assert_allclose(got.dv[0], dv, rtol=0, atol=1e-6)


def by_fine_trapezoids(mean, sd):
    """The same with nodes of 0.4 in every direction, whatever the widths; the first
    direction one node at a time.
    """
    z = [np.linspace(-9, 9, max(41, int(45 * s))) for s in sd]
    weight = [np.exp(-0.5 * x * x) / np.exp(-0.5 * x * x).sum() for x in z]
    f = [m + s * x for m, s, x in zip(mean, sd, z, strict=True)]
    rest = np.stack(np.meshgrid(*f[1:], indexing="ij"), -1)
    rest = rest.reshape(-1, len(mean) - 1)
    rest_weight = np.prod(
        np.stack(np.meshgrid(*weight[1:], indexing="ij"), -1).reshape(rest.shape),
        axis=1,
    )
    sums = np.zeros(1 + 2 * len(mean))
    for x, w in zip(z[0], weight[0], strict=True):
        f = np.column_stack([np.full(len(rest), mean[0] + sd[0] * x), rest])
        total = logsumexp(f, axis=1)
        p = np.exp(f - total[:, None])
        sums += w * (rest_weight @ np.column_stack([total, p, 0.5 * p * (1 - p)]))
    return sums[0], sums[1 : 1 + len(mean)], sums[1 + len(mean) :]


@pytest.mark.parametrize(
    ("mean", "sd"),
    [
        ((0.0, 1.0), (30.0, 20.0)),
        slow((1.0, 2.0), (300.0, 0.1)),
        slow((5.0, -3.0, 1.0), (12.0, 0.5, 5.0)),
        ((5.0, -3.0, 1.0), (3.1, 0.01, 2.0)),
        slow((0.0, 40.0, 1.0), (25.0, 1.0, 4.0)),
    ],
)
def test_the_softmax_of_wide_latents_is_that_of_a_fine_product_rule(mean, sd):
    value, dm, dv = by_fine_trapezoids(mean, sd)
    got = softmax_average(row(*mean), row(*sd) ** 2)
    assert float(got.value) == pytest.approx(value, abs=1e-6)
    np.testing.assert_allclose(got.dm[0], dm, rtol=0, atol=2e-7)
    np.testing.assert_allclose(got.dv[0], dv, rtol=0, atol=2e-8)


@pytest.mark.parametrize("C", [3, 12])
def test_wide_rows_do_not_depend_on_their_neighbours(C):
    rng = np.random.default_rng(C)
    mean, var = (
        torch.tensor(5 * rng.normal(size=(9, C))),
        torch.tensor(rng.uniform(0.1, 3.3, (9, C)) ** 4),
    )
    together = softmax_average(mean, var)
    alone = [softmax_average(mean[i : i + 1], var[i : i + 1]) for i in range(9)]
    for whole, parts in zip(together, zip(*alone, strict=True), strict=True):
        torch.testing.assert_close(whole, torch.cat(parts), rtol=0, atol=1e-12)
    torch.testing.assert_close(
        together.dm.sum(1), torch.ones(9).double(), rtol=0, atol=3e-6
    )


def test_the_factor_s_average_is_the_oracle_s():
    """E log softmax_y by a product of Hermite rules."""
    rng = np.random.default_rng(0)
    y, mean = np.array([0, 1, 2, 1]), rng.normal(size=(4, 3))
    v, r = rng.uniform(0.05, 0.5, (4, 3)), rng.uniform(0.05, 0.5, (4, 3))
    exact = expected_softmax(Whitened(np.zeros((4, 3, 1)), r, y), mean, v, nodes=40)
    f = Latents(*(torch.tensor(x) for x in (mean, v + r, r)))
    got = Softmax(3).average(f, torch.tensor(y))
    assert float(got.value.sum()) == pytest.approx(exact.value, abs=1e-8)
    np.testing.assert_allclose(got.dm, exact.dm, rtol=0, atol=1e-8)
    np.testing.assert_allclose(got.dv, exact.dv, rtol=0, atol=1e-8)
    assert torch.equal(got.dv, got.dr)


@pytest.mark.parametrize("C", [2, 5, 20])
def test_shifting_every_mean_shifts_the_average(C):
    rng = np.random.default_rng(C)
    mean, var = (
        torch.tensor(rng.normal(size=(3, C))),
        torch.tensor(rng.uniform(0.1, 4, (3, C))),
    )
    here, there = softmax_average(mean, var), softmax_average(mean + 700.0, var)
    torch.testing.assert_close(there.value, here.value + 700, rtol=0, atol=1e-9)
    torch.testing.assert_close(there.dm, here.dm, rtol=0, atol=1e-9)


@pytest.mark.parametrize("C", [3, 12])
def test_derivatives_of_the_softmax_are_differences_of_its_value(C):
    rng = np.random.default_rng(C)
    mean, var = (
        torch.tensor(rng.normal(size=(2, C))),
        torch.tensor(rng.uniform(0.1, 2, (2, C))),
    )
    got, h = softmax_average(mean, var), 1e-4
    for c in (0, C - 1):
        e = torch.zeros(C).double()
        e[c] = h
        along = [(softmax_average(mean + e, var), softmax_average(mean - e, var))]
        along.append((softmax_average(mean, var + e), softmax_average(mean, var - e)))
        for slope, (up, down) in zip((got.dm, got.dv), along, strict=True):
            torch.testing.assert_close(
                slope[:, c], (up.value - down.value) / (2 * h), rtol=0, atol=1e-7
            )


def test_certain_values_give_the_plain_softmax():
    mean = row(0.3, -2.0, 40.0, 39.0)
    got = softmax_average(mean, 0 * mean + 1e-20)
    torch.testing.assert_close(got.value, mean.logsumexp(1), rtol=0, atol=1e-8)
    torch.testing.assert_close(got.dm, mean.softmax(1), rtol=0, atol=1e-8)


# --- one dimension ---------------------------------------------------------------------------------------
MEANS, SDS = [-45.0, -6.0, -0.4, 0.0, 3.0, 45.0], [1e-3, 0.1, 1.0, 5.0, 30.0]


def averages(functions, mean, sd, width):
    """E F(f) of each F for f ~ N(mean, sd²), cut where the normal or a kink of the
    given width at 0 bends.
    """
    cuts = {float(x) for x in (-8, -4, -1, 0, 1, 4, 8)}
    cuts |= {(k * width - mean) / sd for k in (-30, -8, -4, -1, 0, 1, 4, 8, 30)}
    cuts = sorted(x for x in cuts if abs(x) < 12)
    density = lambda x: math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    each = [lambda x, F=F: density(x) * float(F(mean + sd * x)) for F in functions]
    options = dict(points=cuts, limit=500, epsabs=1e-13, epsrel=1e-12)
    return [quad(F, -12, 12, **options)[0] for F in each]


@pytest.mark.parametrize("sd", SDS)
@pytest.mark.parametrize("mean", MEANS)
def test_the_logistic_is_that_of_adaptive_quadrature(mean, sd):
    """E log σ, its derivatives E σ(−f) and −½ E σσ(−), and log E σ."""
    functions = (
        log_expit,
        lambda f: expit(-f),
        lambda f: -0.5 * expit(f) * expit(-f),
        expit,
    )
    *exact, p = averages(functions, mean, sd, 1.0)
    got = sigmoid_average(row(mean), row(sd**2))
    for a, b in zip(got, exact, strict=True):
        assert float(a) == pytest.approx(b, rel=1e-7, abs=1e-8)
    against, own = (
        float(log_p.exp())
        for log_p in log_sigmoid_probability(row(mean)[0], row(sd**2)[0])
    )
    assert own == pytest.approx(p, rel=1e-7, abs=1e-8) and against == pytest.approx(
        1 - p, rel=1e-7, abs=1e-8
    )


@pytest.mark.parametrize("residual", [1e-4, 0.3, 50.0])
@pytest.mark.parametrize("sd", SDS[1:])
@pytest.mark.parametrize("mean", MEANS)
def test_the_probit_is_that_of_adaptive_quadrature(mean, sd, residual):
    """E log Φ(d/√R), and its derivatives in the mean, the variance and R."""
    width = math.sqrt(residual)
    functions = (
        lambda d: log_ndtr(d / width),
        lambda d: hazard(d / width) / width,
        lambda d: -0.5 * bend(d / width) / residual,
        lambda d: -0.5 * hazard(d / width) * (d / width) / residual,
    )
    got = probit_average(row(mean), row(sd**2), row(residual))
    for a, b in zip(got, averages(functions, mean, sd, width), strict=True):
        assert float(a) == pytest.approx(b, rel=1e-7, abs=1e-8)


@pytest.mark.parametrize("amplitude", [1.0, 100.0, 1000.0])
@pytest.mark.parametrize("C", [3, 5, 8])
def test_correlated_probabilities_are_right_to_a_thousandth_at_any_amplitude(
    C, amplitude
):
    """Sobol points of another scrambling, 32 times as many as the wide rows use."""
    rng = np.random.default_rng(C)
    A = rng.normal(size=(4, C, C))
    cov = torch.tensor(amplitude * A @ A.transpose(0, 2, 1) / C)
    mean = torch.tensor(amplitude**0.5 * rng.normal(size=(4, C)))
    u = np.clip(qmc.Sobol(C, scramble=True, seed=7).random_base2(19), 1e-12, 1 - 1e-12)
    z = torch.tensor(ndtri(u))
    root = torch.linalg.cholesky(cov)
    expected = torch.stack(
        [(m + z @ L.mT).softmax(-1).mean(0) for m, L in zip(mean, root, strict=True)]
    )
    np.testing.assert_allclose(
        log_softmax_probability(mean, cov).exp(), expected, atol=1e-3
    )
    total = softmax_uncertainty(mean, cov).total
    np.testing.assert_allclose(total, -(expected * expected.log()).sum(1), atol=5e-3)


def test_the_probit_average_of_the_logistic_errs_by_two_hundredths_at_most():
    """σ(m/√(1 + πv/8)), which papers use."""
    m, sd = np.meshgrid(np.linspace(-30, 30, 201), np.geomspace(1e-2, 30, 30))
    mean, var = torch.tensor(m.reshape(-1)), torch.tensor(sd.reshape(-1) ** 2)
    exact = log_sigmoid_probability(mean, var)[1].exp()
    error = (exact - (mean / (1 + np.pi / 8 * var).sqrt()).sigmoid()).abs().max()
    assert 0.015 < error < 0.02
