"""The laws of the method, for whatever numbers: sites, cavities, scales, labels,
weights.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr, ndtr

from cavity.engine.inference.posterior import Normal
from cavity.engine.inference.sites import Share, Site, refresh, remove
from cavity.engine.likelihoods.quadrature.probabilities import log_largest
from cavity.kernels import RBF
from cavity.likelihoods import BinaryProbit, Latents, ProbitPairs
from support import latents, machine, toy

few = settings(max_examples=settings.default.max_examples // 4)

means = st.floats(-4, 4)
variances = st.floats(0.01, 10)
residuals = st.floats(1e-3, 3)
labels = st.integers(0, 1)


def column(*values):
    return torch.tensor([values], dtype=torch.float64)


def share(p=1.0, exponent=None, copies=1.0):
    e = None if exponent is None else torch.tensor([exponent], dtype=torch.float64)
    return Share(column(p), e, column(copies))


def restored(cavity: Normal, site: Site) -> Normal:
    """The cavity times the site, as mean and variance."""
    precision = 1 / cavity.var + site.tau
    return Normal((cavity.mean / cavity.var + site.nu) / precision, 1 / precision)


def tilted(log_factor, mean, var):
    """Mean and variance of exp(log_factor(t)) N(t; mean, var), by the trapezoidal rule
    where it is above e⁻⁴⁵.

    The integrand is smooth and dies off at both ends, so the rule is right to rounding.
    """
    log_p = lambda t: log_factor(t) - 0.5 * (t - mean) ** 2 / var
    wide = mean + math.sqrt(var) * np.linspace(-100, 100, 40_001)
    above = np.flatnonzero(log_p(wide) > log_p(wide).max() - 45)
    t = np.linspace(wide[above[0] - 1], wide[above[-1] + 1], 20_001)
    p = np.exp(log_p(t) - log_p(t).max())
    p /= p.sum()
    return p @ t, p @ (t - p @ t) ** 2


# --- one site ----------------------------------------------------------------------------------------------
@given(means, variances, residuals, labels)
def test_a_site_times_its_cavity_has_the_tilted_moments(m, v, r, y):
    """Two classes: q ∝ Φ(±t/√r) N(t; m, v)."""
    cavity = Normal(column(m), column(v))
    f = Latents(cavity.mean, cavity.var + r, column(r))
    moments = BinaryProbit().moments(f, torch.tensor([y]), None)
    got = restored(cavity, refresh(cavity, moments, share()))
    sign = 2 * y - 1
    mean, var = tilted(lambda t: log_ndtr(sign * t / math.sqrt(r)), m, v)
    assert float(got.mean) == pytest.approx(mean, rel=1e-7, abs=1e-8)
    assert float(got.var) == pytest.approx(var, rel=1e-6)
    assert float(moments.value) == pytest.approx(
        log_ndtr(sign * m / math.sqrt(v + r)), rel=1e-12
    )


@given(
    st.lists(means, min_size=3, max_size=3),
    st.lists(variances, min_size=3, max_size=3),
    residuals,
)
def test_both_sites_of_a_pair_have_the_tilted_moments(m, v, r):
    """Class y against rival k: the other latent integrated out, Φ((t_y − m_k)/√(2r +
    v_k)) N(t_y; m_y, v_y).
    """
    y = torch.tensor([1])
    factor = ProbitPairs(3)
    classes = factor.sites(y)[0].tolist()
    assert classes == [1, 1, 0, 2]
    cavity = Normal(column(*(m[c] for c in classes)), column(*(v[c] for c in classes)))
    residual = torch.full_like(cavity.var, r)
    moments = factor.moments(
        Latents(cavity.mean, cavity.var + residual, residual), y, None
    )
    got = restored(cavity, refresh(cavity, moments, share()))
    for place, (own, other, sign) in enumerate(
        [(1, 0, 1), (1, 2, 1), (0, 1, -1), (2, 1, -1)]
    ):
        scale = math.sqrt(2 * r + v[other])
        mean, var = tilted(
            lambda t, o=other, s=sign, d=scale: log_ndtr(s * (t - m[o]) / d),
            m[own],
            v[own],
        )
        assert float(got.mean[0, place]) == pytest.approx(mean, rel=1e-7, abs=1e-8)
        assert float(got.var[0, place]) == pytest.approx(var, rel=1e-6)


@few
@given(means, variances, residuals, st.floats(0.05, 0.95))
def test_a_light_row_matches_a_power_of_its_factor(m, v, r, weight):
    """ω < 1: the whole row is removed, Φ^ω is matched."""
    cavity = Normal(column(m), column(v))
    f = Latents(cavity.mean, cavity.var + r, column(r))
    part = share(exponent=weight)
    moments = BinaryProbit().moments(f, torch.tensor([1]), part.exponent)
    got = restored(cavity, refresh(cavity, moments, part))
    mean, var = tilted(lambda t: weight * log_ndtr(t / math.sqrt(r)), m, v)
    assert float(got.mean) == pytest.approx(mean, rel=1e-6, abs=1e-7)
    assert float(got.var) == pytest.approx(var, rel=1e-5)


@given(means, variances, st.floats(0, 0.95), means, st.floats(1, 20))
def test_the_cavity_undoes_the_site(m, v, part, nu, copies):
    """N(m, v) without p of the site, times p of the site, is N(m, v) again."""
    t, site = (
        Normal(column(m), column(v)),
        Site(column(copies * part / v), column(copies * nu)),
    )
    cavity = remove(t, site, share(p=1 / copies, copies=copies))
    assert bool(cavity.usable)
    again = restored(cavity.t, Site(site.tau / copies, site.nu / copies))
    assert float(again.mean) == pytest.approx(m, rel=1e-9, abs=1e-9)
    assert float(again.var) == pytest.approx(v, rel=1e-9)
    torch.testing.assert_close(cavity.t.var, t.var / cavity.keep)


def test_a_site_that_leaves_no_cavity_is_not_usable():
    t = Normal(column(0.0), column(2.0))
    assert not bool(remove(t, Site(column(0.4999), column(0.0)), share()).usable)
    assert not bool(remove(t, Site(column(3.0), column(0.0)), share()).usable)
    assert bool(remove(t, Site(column(0.49), column(0.0)), share()).usable)


# --- the whole machine -----------------------------------------------------------------------------------
NEW = np.random.default_rng(9).normal(size=(4, 2))
seeds = st.integers(0, 1000)
methods = st.sampled_from(["ep", "sep"])
classes = st.integers(2, 5)


def setting(C, seed, N=10, M=3):
    """Rows, inducing points, lengthscales, variances and noises of a random problem."""
    X, y = toy(N, C, seed=seed)
    K = 1 if C == 2 else C
    rng = np.random.default_rng(seed + 1)
    Z, lengthscale = rng.normal(size=(K, M, 2)), rng.uniform(0.5, 2, (K, 2))
    return X, y, Z, lengthscale, rng.uniform(0.3, 3, K), rng.uniform(0.05, 1, K)


def sweeps(X, y, Z, lengthscale, variance, noise, count=8, **options):
    """A machine and its state after a few damped sweeps."""
    options = {"learn": (), "damping": 0.7, **options}
    run = machine(X, y, Z, kernel=RBF(lengthscale, variance), noise=noise, **options)
    state = run.state
    for _ in range(count):
        state, info = run.step(state)
        assert not info.failed
    return run, state


def probabilities(run, state):
    """Class probabilities at NEW, (n, C)."""
    f = latents(run, state, NEW)
    if len(f.mean) == 1:
        p = ndtr((f.mean / f.var.sqrt()).numpy())[0]
        return np.stack([1 - p, p], 1)
    return log_largest(f.mean.mT, f.var.mT).exp().numpy()


@given(seeds, labels, st.booleans(), st.sampled_from([1.0, 0.3, 1e-3]))
def test_sep_with_one_factor_is_ep(seed, y, pair, weight):
    """One row, one factor, as light as may be: the tied cavity removes all there is."""
    X, _, Z, lengthscale, variance, _ = setting(2, seed)
    kernel = lambda: RBF(lengthscale[0], variance[0])
    factor = ProbitPairs(2) if pair else BinaryProbit()
    options = dict(
        factor=factor,
        one_each=pair,
        n_classes=2,
        weight=np.array([weight]),
        noise=0.2,
        learn=(),
    )
    both = []
    for method in ("ep", "sep"):
        run = machine(
            X[:1], np.array([y]), Z, kernel=kernel(), method=method, **options
        )
        state, _ = run.step(run.state)
        state, _ = run.step(state)
        both.append(
            (
                state.sums.P,
                state.sums.h,
                torch.tensor(run.evidence(state), dtype=torch.float64),
            )
        )
    for a, b in zip(*both, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    if weight == 1:
        assert float(both[0][2]) == pytest.approx(math.log(0.5), abs=1e-10)


@few
@given(seeds, classes, methods, st.floats(0.01, 100))
def test_one_scale_for_all_variances_and_noises_changes_nothing(seed, C, method, scale):
    X, y, Z, lengthscale, variance, noise = setting(C, seed)
    run, state = sweeps(X, y, Z, lengthscale, variance, noise, method=method)
    big, grown = sweeps(
        X, y, Z, lengthscale, scale * variance, scale * noise, method=method
    )
    torch.testing.assert_close(
        run.step(state)[1].evidence, big.step(grown)[1].evidence, rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(
        probabilities(run, state), probabilities(big, grown), rtol=0, atol=1e-8
    )
    f, g = latents(run, state, NEW), latents(big, grown, NEW)
    torch.testing.assert_close(g.mean, math.sqrt(scale) * f.mean, rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(g.var, scale * f.var, rtol=1e-7, atol=1e-8)


@few
@given(seeds, st.integers(3, 5), methods, st.data())
def test_relabelling_classes_permutes(seed, C, method, data):
    order = np.array(data.draw(st.permutations(range(C))))
    X, y, Z, lengthscale, variance, noise = setting(C, seed)
    run, state = sweeps(X, y, Z, lengthscale, variance, noise, method=method)
    moved, other = sweeps(
        X,
        np.argsort(order)[y],
        Z[order],
        lengthscale[order],
        variance[order],
        noise[order],
        method=method,
    )
    torch.testing.assert_close(other.sums.P, state.sums.P[order], rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(other.sums.h, state.sums.h[order], rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(
        run.step(state)[1].evidence, moved.step(other)[1].evidence, rtol=1e-10, atol=0
    )
    np.testing.assert_allclose(
        probabilities(moved, other),
        probabilities(run, state)[:, order],
        rtol=0,
        atol=1e-9,
    )


@few
@given(seeds, methods)
def test_swapping_two_classes_mirrors(seed, method):
    """One latent function: y → 1 − y turns its sign."""
    X, y, *rest = setting(2, seed)
    run, state = sweeps(X, y, *rest, method=method)
    moved, other = sweeps(X, 1 - y, *rest, method=method)
    torch.testing.assert_close(other.sums.P, state.sums.P, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(other.sums.h, -state.sums.h, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        probabilities(moved, other),
        probabilities(run, state)[:, ::-1],
        rtol=0,
        atol=1e-12,
    )


@few
@given(seeds, classes, methods, st.data())
def test_the_order_of_rows_does_not_matter(seed, C, method, data):
    X, y, *rest = setting(C, seed)
    order = np.array(data.draw(st.permutations(range(len(X)))))
    run, state = sweeps(X, y, *rest, method=method)
    moved, other = sweeps(X[order], y[order], *rest, method=method)
    torch.testing.assert_close(
        tuple(other.sums), tuple(state.sums), rtol=1e-8, atol=1e-10
    )
    torch.testing.assert_close(
        run.step(state)[1].evidence, moved.step(other)[1].evidence, rtol=1e-10, atol=0
    )


@few
@given(seeds, classes, methods, st.lists(st.integers(1, 4), min_size=10, max_size=10))
def test_a_whole_weight_is_that_many_rows(seed, C, method, times):
    """In every single sweep, not only at the fixed point."""
    X, y, *rest = setting(C, seed)
    run, state = sweeps(
        X, y, *rest, method=method, weight=np.array(times, dtype=float), count=4
    )
    long, other = sweeps(
        np.repeat(X, times, axis=0), np.repeat(y, times), *rest, method=method, count=4
    )
    torch.testing.assert_close(
        tuple(other.sums), tuple(state.sums), rtol=1e-8, atol=1e-10
    )
    torch.testing.assert_close(
        run.step(state)[1].evidence, long.step(other)[1].evidence, rtol=1e-10, atol=0
    )


@few
@given(seeds, classes, st.integers(0, 9))
def test_a_vanishing_weight_is_absence(seed, C, row):
    X, y, *rest = setting(C, seed, N=12)
    row = max(row, C)  # the first rows are one of each class
    weight = np.ones(12)
    weight[row] = 1e-10
    _, state = sweeps(X, y, *rest, weight=weight, count=4)
    _, other = sweeps(np.delete(X, row, 0), np.delete(y, row), *rest, count=4)
    torch.testing.assert_close(
        tuple(other.sums), tuple(state.sums), rtol=1e-6, atol=1e-7
    )
