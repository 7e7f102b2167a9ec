"""How likely each of C normals is the largest, against the reference's quadrature
around each integrand's mode.
"""

import math
import sys
from itertools import product

import numpy as np
import pytest
import torch
from scipy import special
from scipy.special import log_ndtr

from cavity.engine.likelihoods.quadrature import largest
from cavity.engine.likelihoods.quadrature.grid import bumps, piecewise_legendre
from cavity.engine.likelihoods.quadrature.largest import log_probabilities
from cavity.engine.likelihoods.quadrature.nodes import NodeTable
from cavity.engine.likelihoods.quadrature.probabilities import (
    log_largest as log_normalised,
)
from cavity.engine.likelihoods.quadrature.rivals import LOG_SQRT_2PI
from reference.robust import log_largest
from support import slow


def ours(mean, var):
    return log_probabilities(mean[None], np.sqrt(var)[None])[0]


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
@pytest.mark.parametrize("C", [2, 3, 6, 16, 17, 30, 50])
def test_probability_of_being_the_largest(C, kind):
    atol = 1e-10
    for number in range(2):
        mean, var = problems(C, kind, number)
        got = ours(mean, var)
        assert np.exp(got).sum() == pytest.approx(1, abs=C * atol)
        classes = np.unique(np.concatenate([got.argsort()[-3:], [got.argmin()]]))
        exact = np.array([log_largest(k, mean, var, adaptive=False) for k in classes])
        np.testing.assert_allclose(
            np.exp(got[classes]), np.exp(exact), rtol=0, atol=atol
        )
        seen = exact > -20
        np.testing.assert_allclose(
            got[classes][seen], exact[seen], rtol=1e-6, atol=atol
        )


NEAR = list(product([0.0, 1.0, 3.0, 5.0], [1.0, 1e-2, 1e-4, 1e-8]))
FAR = list(product([10.0, 20.0, 30.0, 36.0], [1.0, 1e-1, 1e-2]))


@pytest.mark.parametrize(("distance", "ratio"), NEAR + FAR)
def test_two_classes_have_a_closed_form(distance, ratio):
    """P(f₁ > f₀) = Φ((m₁ − m₀)/√(v₀ + v₁)), whichever of the two is the narrow one.

    Far tails keep their logarithm, down to log p = −650: p itself is right to 0.1 %.
    """
    z = distance / math.sqrt(1 + ratio)
    error = (
        {"rtol": 2e-8, "atol": 1e-10}
        if (distance, ratio) in NEAR
        else {"rtol": 0, "atol": 1e-3}
    )
    for var in ([1.0, ratio], [ratio, 1.0]):
        got = ours(np.array([0.0, distance]), np.array(var))
        np.testing.assert_allclose(got, [log_ndtr(-z), log_ndtr(z)], **error)


@pytest.mark.parametrize(
    ("C", "decades"), [(3, 3), (6, 12), (10, 2), (17, 1), (30, 4), slow(50, 1)]
)
def test_far_tails_of_uneven_classes_keep_their_logarithm(C, decades):
    """Means of ±40 and variances of 10^±decades: log p is right to 0.1 % where p >
    1e-300.
    """
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
    """Two broad classes and C − 2 narrow ones in one place, which has nearly all of the
    breakpoints.
    """
    mean, var = np.full(C, 0.5), np.full(C, 1e-8)
    mean[:2], var[:2] = 0.0, 1.0
    mean[2:] += 1e-4 * np.random.default_rng(0).normal(size=C - 2)
    got = ours(mean, var)
    classes = [0, 2, int(mean.argmax())]
    exact = [log_largest(k, mean, var, adaptive=False) for k in classes]
    np.testing.assert_allclose(np.exp(got[classes]), np.exp(exact), rtol=0, atol=error)


# --- many rows, against panels that are many times finer ------------------------------------------------
def draw(C, spread, decades, n=40, seed=0):
    generator = torch.Generator().manual_seed(seed + C)
    mean = spread * torch.randn(n, C, dtype=torch.float64, generator=generator)
    return mean, 10 ** (
        decades * (torch.rand(n, C, dtype=torch.float64, generator=generator) - 0.5)
    )


def by_fine_panels(mean, sd):
    edges = bumps(mean, sd)
    steps = torch.linspace(0, 1, 5, dtype=torch.float64)[:-1]
    fine = (edges[:, :-1, None] + edges.diff(dim=1)[..., None] * steps).flatten(1)
    grid = piecewise_legendre(torch.cat([fine, edges[:, -1:]], 1))
    return sum_logs(mean, sd, grid.nodes, grid.log_weights)


def sum_logs(mean, sd, f, log_weight):
    z = (f[..., None] - mean[:, None]) / sd[:, None]
    log_cdf = torch.special.log_ndtr(z)
    log_g = (
        -0.5 * z * z
        - LOG_SQRT_2PI
        - sd[:, None].log()
        + log_cdf.sum(-1, keepdim=True)
        - log_cdf
    )
    return (log_g + log_weight[..., None]).logsumexp(1)


@pytest.mark.parametrize("C", [2, 3, 10, 17, 40])
@pytest.mark.parametrize(
    ("spread", "decades"), [(0.3, 0.5), (1.0, 0.0), (3.0, 1.0), (8.0, 0.3), (30.0, 1.5)]
)
def test_rows_are_accurate_in_both_scales(C, spread, decades):
    """In torch and in NumPy, with the tails of SciPy and with those that do not load
    it.
    """
    mean, sd = draw(C, spread, decades, n=max(6, 120 // C))
    exact = by_fine_panels(mean, sd)
    own = pytest.MonkeyPatch()
    own.delitem(sys.modules, "scipy.special")
    without_scipy = log_probabilities(mean.numpy(), sd.numpy())
    own.undo()
    for found in (
        log_probabilities(mean, sd),
        log_probabilities(mean.numpy(), sd.numpy()),
        without_scipy,
    ):
        log_p = torch.as_tensor(found)
        torch.testing.assert_close(log_p.exp(), exact.exp(), rtol=0, atol=1e-11)
        seen = exact > (-300 if decades < 1.5 else -30)  # what the panels resolve
        torch.testing.assert_close(log_p[seen], exact[seen], rtol=0, atol=1e-9)


@pytest.mark.parametrize("leader", [0.0, 3.0, 6.0])
@pytest.mark.parametrize("C", [10, 100, 1000])
def test_a_crowd_below_the_leader(C, leader):
    """Many equal classes make the integrand sharper than any of them.

    Against a long sum over all of the mass.
    """
    mean, sd = draw(C, 0.3, 0.3, n=2)
    mean[:, 0] += leader
    low, high = (
        (mean - 9 * sd).amax(1, keepdim=True),
        (mean + 12 * sd).amax(1, keepdim=True),
    )
    f = torch.lerp(low, high, torch.linspace(0, 1, 2001, dtype=torch.float64))
    exact = sum_logs(mean, sd, f, ((high - low) / 2000).log())
    torch.testing.assert_close(log_probabilities(mean, sd), exact, rtol=0, atol=1e-9)


@pytest.mark.parametrize("C", [5, 20])
def test_a_row_is_the_same_in_any_batch(C):
    mean, sd = draw(C, 10.0, 1.0)
    alone = torch.cat(
        [log_probabilities(mean[i : i + 1], sd[i : i + 1]) for i in range(40)]
    )
    torch.testing.assert_close(
        log_probabilities(mean, sd), alone, rtol=1e-12, atol=1e-12
    )


def test_values_that_are_not_numbers_stay_in_their_rows():
    mean, sd = draw(4, 1.0, 0.0, n=3)
    expected = log_probabilities(mean, sd)
    mean[1, 2], sd[2, 0] = torch.nan, torch.nan
    found = log_probabilities(mean, sd)
    assert found[1:].isnan().all(1).all()
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=0)


def test_few_rows_and_single_precision_are_normalised_like_others():
    mean, sd = draw(3, 2.0, 0.5)
    whole = log_normalised(mean, sd.square())
    torch.testing.assert_close(
        log_normalised(mean[:2], sd[:2].square()), whole[:2], rtol=0, atol=1e-11
    )
    single = log_normalised(mean.float(), sd.square().float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("C", "decades"), [(3, 1.0), (10, 1.0), (30, 0.5)])
def test_the_graph_agrees(C, decades):
    """As probabilities, and as logarithms where p is not negligible."""
    mean, sd = draw(C, 3.0, decades)
    found, exact = (
        largest.integrate_in_graph(mean, sd.square()),
        log_probabilities(mean, sd),
    )
    torch.testing.assert_close(found.exp(), exact.exp(), rtol=0, atol=1e-10)
    torch.testing.assert_close(
        found[exact > -60], exact[exact > -60], rtol=0, atol=1e-7
    )


def test_the_table_of_log_cdf_agrees_with_scipy():
    """Inside the table, at its ends and beyond; cells of zero beyond HIGH."""
    z = np.concatenate([np.linspace(-37, 9, 200_001), [9.5, 40.0, 1e300]])

    def log_cdf(z):
        return -NodeTable()(np.zeros((1, 1)), np.ones((1, 1)), np.atleast_2d(z))[1][0]

    with np.errstate(over="ignore"):
        np.testing.assert_allclose(
            log_cdf(z), special.log_ndtr(z), rtol=3e-15, atol=1e-13
        )
        assert (log_cdf([-37.5, -1e300]) == log_cdf([-37.0])).all()
    assert np.isnan(log_cdf([np.nan, 1.0])).tolist() == [True, False]
