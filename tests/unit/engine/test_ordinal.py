"""Ordered classes: moments by SciPy's quadrature, tails, and dense EP by brute force."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm

from cavity.engine import EP, GP, evidence, infer
from cavity.errors import BadOption
from cavity.kernels import RBF
from cavity.likelihoods import BinaryProbit, Latents, Ordinal
from cavity.testing import check_likelihood

B = (-0.8, 0.3, 1.1)  # thresholds of four classes
ORDER = (2, 0, 3, 1)  # place of each class


def marginals(mean, var, residual=0.5):
    found = (torch.tensor(x, dtype=torch.float64)[:, None] for x in (mean, var))
    mean, var = found
    return Latents(mean, var, residual * var)


def test_the_laws_hold_for_every_order():
    for likelihood, classes in (
        (Ordinal(), 5),
        (Ordinal(ORDER, B), 4),
        (Ordinal((1, 0)), 2),
    ):
        report = check_likelihood(likelihood, classes)
        assert list(report.skipped) == ["average"]


def test_moments_are_integrals():
    """∫ p(y | t) N(t; m, v) dt with the residual r as noise of the thresholds."""
    ordinal = Ordinal(ORDER, B).bind(4)
    ends = [-np.inf, *B, np.inf]
    for y, place in enumerate(ORDER):
        for m, v, r in ((0.2, 1.0, 0.3), (-2.0, 0.4, 0.1), (3.0, 2.0, 1.5)):
            values = torch.tensor([m, v + r, r], dtype=torch.float64)
            f = Latents(*values[:, None, None])
            found = ordinal.moments(f, torch.tensor([y]), None)

            def tilted(t, power, m=m, v=v, r=r, place=place):
                high = ndtr((ends[place + 1] - t) / np.sqrt(r))
                low = ndtr((ends[place] - t) / np.sqrt(r))
                return t**power * (high - low) * norm.pdf(t, m, np.sqrt(v))

            span = (m - 12 * np.sqrt(v), m + 12 * np.sqrt(v))
            Z, first, second = (
                quad(tilted, *span, args=(k,), epsabs=0, epsrel=1e-12, limit=200)[0]
                for k in range(3)
            )
            # d log Z/dm = (E t − m)/v        d² log Z/dm² = (Var t − v)/v²
            d1 = (first / Z - m) / v
            d2 = (second / Z - (first / Z) ** 2 - v) / v**2
            assert float(found.value) == pytest.approx(np.log(Z), rel=1e-9)
            assert float(found.dm) == pytest.approx(d1, rel=1e-8)
            assert float(2 * found.dv - found.dm**2) == pytest.approx(d2, rel=1e-7)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_tails_are_finite_and_log_concave(dtype):
    """Also where Φ is 0 or 1, and between thresholds that nearly coincide."""
    ordinal = Ordinal(None, (0.0, 1e-6, 2.0)).bind(4)
    mean = torch.linspace(-1e3, 1e3, 401, dtype=dtype)[:, None]
    for y in range(4):
        labels = torch.full((401,), y)
        f = Latents(mean, torch.full_like(mean, 0.5), torch.full_like(mean, 0.1))
        found = ordinal.moments(f, labels, None)
        d2 = 2 * found.dv - found.dm.square()
        for x in found:
            assert x.isfinite().all()
        slack = 1e-3 if dtype == torch.float64 else found.dm.square().max() * 1e-6
        assert (d2 <= slack).all()
        assert (d2 >= -2 - slack).all()


def test_far_tails_are_those_of_mpmath():
    """log(Φ(u) − Φ(l)) where both are far in the same tail, against 60 digits."""
    mpmath = pytest.importorskip("mpmath")
    mpmath.mp.dps = 400
    ordinal = Ordinal(None, (0.0, 0.5)).bind(3)
    for m in (-25.0, -6.0, 9.0, 30.0):
        f = marginals([m], [1.0])
        found = ordinal.moments(f, torch.tensor([1]), None).value
        wanted = mpmath.log(mpmath.ncdf(0.5 - m) - mpmath.ncdf(-m))
        assert float(found) == pytest.approx(float(wanted), rel=1e-12)


def test_two_classes_and_a_threshold_at_zero_are_the_probit():
    rng = np.random.default_rng(0)
    f = marginals(rng.normal(size=20), rng.uniform(0.2, 3, 20))
    y = torch.arange(20) % 2
    ordinal = Ordinal(None, (0.0,)).bind(2).moments(f, y, None)
    probit = BinaryProbit().moments(f, y, None)
    for ours, other in zip(ordinal[:3], probit[:3], strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-10, atol=1e-12)


def test_places_permute_the_probabilities():
    mean, var = np.array([[-1.0], [0.4]]), np.array([[0.5], [2.0]])
    sorted_ones = Ordinal(None, B).bind(4).log_probability(mean, var)
    turned = Ordinal(ORDER, B).bind(4).log_probability(mean, var)
    np.testing.assert_allclose(turned, sorted_ones[:, ORDER], atol=1e-12)


def dense_ep(K, y, noise, sweeps=400):
    """EP for all rows with the N × N covariance K: moments by SciPy's normal cdf."""
    ends = np.array([-np.inf, *B, np.inf])
    place = np.array(ORDER)[y]
    N = len(y)
    tau, nu = np.zeros(N), np.zeros(N)
    for _ in range(sweeps):
        S = np.linalg.inv(np.linalg.inv(K) + np.diag(tau))
        mu = S @ nu
        v = 1 / (1 / np.diag(S) - tau)
        m = v * (mu / np.diag(S) - nu)
        sd = np.sqrt(v + noise)
        u, low = (ends[place + 1] - m) / sd, (ends[place] - m) / sd
        Z = ndtr(u) - ndtr(low)
        d1 = (norm.pdf(low) - norm.pdf(u)) / (Z * sd)
        parts = [np.clip(x, -99, 99) * norm.pdf(x) for x in (u, low)]
        d2 = -(parts[0] - parts[1]) / (Z * sd**2) - d1**2
        new_tau = -d2 / (1 + v * d2)
        new_nu = (d1 - m * d2) / (1 + v * d2)
        tau, nu = 0.5 * (tau + new_tau), 0.5 * (nu + new_nu)
    cross = np.log(1 + tau * v)
    fit = (nu**2 * v + 2 * nu * m - tau * m**2) / (1 + tau * v)
    log_sites = np.log(Z) + 0.5 * cross - 0.5 * fit
    system = np.eye(N) + K * tau[None]
    log_z = log_sites.sum() - 0.5 * np.linalg.slogdet(system)[1] + 0.5 * nu @ mu
    return mu, S, log_z


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(14, 2))
    place = np.digitize(X[:, 0] + 0.5 * rng.normal(size=14), B)
    return X, np.argsort(ORDER)[place]


def test_ep_is_brute_force(rows):
    X, y = rows
    gp = GP(
        kernel=RBF(1.2, 1.5),
        likelihood=Ordinal(ORDER, B).bind(4),
        inducing=X,
        noise=0.2,
        jitter=1e-10,
    )
    post = infer(gp, X, y, method=EP(), tol=1e-11)
    K = 1.5 * np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(-1) / 1.2**2)
    mu, S, log_z = dense_ep(K, y, 0.2)
    f = post.latent(X)
    np.testing.assert_allclose(f.mean[0], mu, atol=1e-6)
    np.testing.assert_allclose(f.var[0], np.diag(S), atol=1e-6)
    assert post.log_evidence == pytest.approx(log_z, abs=1e-6)


def test_the_gradient_in_the_thresholds_is_a_difference(rows):
    X, y = rows
    found = []
    for step in (0.0, 1e-4, -1e-4):
        likelihood = Ordinal(ORDER, B).bind(4)
        likelihood.cuts.data[1] += step
        gp = GP(kernel=RBF(1.2), likelihood=likelihood, inducing=X[:6], noise=0.2)
        found.append(evidence(gp, X, y, method=EP(), tol=1e-11))
    difference = (found[1].value - found[2].value) / 2e-4
    assert float(found[0].gradient[-2]) == pytest.approx(float(difference), rel=1e-5)


def test_wrong_places_and_thresholds_are_refused():
    for likelihood in (
        Ordinal((0, 1)),
        Ordinal((0, 1, 1)),
        Ordinal(None, (0.0,)),
        Ordinal(None, (1.0, 0.0)),
    ):
        with pytest.raises(BadOption, match="Ordinal"):
            likelihood.bind(3)
