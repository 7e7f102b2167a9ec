"""The other sparse regressors: Nyström, subset of data, Bayesian committee machine,
conjugate gradients.
"""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from cavity.common.column_statistics import distinct_rows, summarize
from cavity.fitting import row_subsets
from cavity.kernels import Matern32
from cavity.tables.table import Table
from equivalence.test_regression import LENGTHSCALE, NOISE, VARIANCE, k, model
from reference import sparse_regression as explicit

RNG = np.random.default_rng(0)
X = distinct_rows(RNG.normal(size=(31, 2)))[0]
Y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.3 * RNG.normal(size=31)
NEW, Z = RNG.normal(size=(7, 2)), RNG.normal(size=(6, 2))


EXACT = explicit.exact(explicit.kernels(k, X, X, NEW), Y, NOISE)


def assert_is(gp, answer, atol=1e-8, evidence=True):
    mean, cov = gp.predict(NEW, return_cov=True, noise=False)
    np.testing.assert_allclose(mean, answer.mean, atol=atol)
    np.testing.assert_allclose(cov, answer.cov, atol=atol)
    if evidence:
        assert gp.log_marginal_likelihood_ == pytest.approx(
            answer.log_evidence, abs=atol
        )


def test_nystrom_is_that_of_explicit_matrices_and_exact_with_every_row():
    answer = explicit.sparse(explicit.kernels(k, Z, X, NEW), Y, NOISE, "nystrom")
    gp = model("nystrom", inducing=Z).fit(X, Y)
    assert_is(gp, answer)
    mean, sd = gp.predict(NEW, return_std=True, noise=False)
    np.testing.assert_allclose(mean, answer.mean, atol=1e-8)
    np.testing.assert_allclose(
        sd, np.sqrt(np.maximum(np.diag(answer.cov), 0)), atol=1e-8
    )
    assert_is(model("nystrom", inducing=None).fit(X, Y), EXACT)


def test_nystroms_variance_can_be_negative_and_is_then_zero():
    few = model("nystrom", inducing=Z[:1], noise=1e-3).fit(X, Y)
    assert np.diag(few.predict(X, return_cov=True, noise=False)[1]).min() < -0.1
    assert few.predict(X, return_std=True, noise=False)[1].min() == 0


# --- subset of data ----------------------------------------------------------------------------------------
def brute_active(criterion, M):
    """Each step with the posterior of explicit matrices."""
    chosen, every = [], np.arange(len(X))
    for _ in range(M):
        rest = [j for j in every if j not in chosen]
        C = k(X[chosen], X[chosen]) + NOISE * np.eye(len(chosen))
        mean, cov = explicit.conditional(C, k(X[chosen], X), k(X, X), Y[chosen])
        v, m = np.diag(cov), mean
        if criterion == "entropy":
            gain = 0.5 * np.log((v + NOISE) / NOISE)
        else:
            new_v = 1 / (1 / v + 1 / NOISE)
            new_m = new_v * (m / v + Y / NOISE)
            gain = 0.5 * (new_v / v - 1 - np.log(new_v / v) + (new_m - m) ** 2 / v)
        chosen.append(max(rest, key=lambda j, gain=gain: gain[j]))
    return np.sort(chosen)


@pytest.mark.parametrize("criterion", ["entropy", "information"])
def test_the_active_set_is_the_greedy_one(criterion):
    kernel = Matern32(LENGTHSCALE, VARIANCE)
    kernel.bind(1, summarize(X, np.ones(31), np.random.default_rng(0)))
    got = row_subsets.active_rows(kernel, X, Y, np.full(31, NOISE), 9, criterion)
    np.testing.assert_array_equal(got, brute_active(criterion, 9))
    gp = model("sd", n_inducing=9, selection=criterion).fit(X, Y)
    assert_is(
        gp, explicit.exact(explicit.kernels(k, X[got], X[got], NEW), Y[got], NOISE)
    )


def test_all_of_the_data_is_exact():
    assert_is(model("sd", n_inducing=31).fit(X, Y), EXACT)


# --- Bayesian committee machine ----------------------------------------------------------------------------
def brute_committee(member, new):
    """(4.10) of the thesis, with explicit inverses."""
    K = k(new, new)
    each = [
        explicit.exact(
            explicit.kernels(k, X[member == c], X[member == c], new),
            Y[member == c],
            NOISE,
        )
        for c in range(member.max() + 1)
    ]
    precision = sum(np.linalg.inv(a.cov) for a in each) - (
        len(each) - 1
    ) * np.linalg.inv(K)
    cov = np.linalg.inv(precision)
    mean = cov @ sum(np.linalg.inv(a.cov) @ a.mean for a in each)
    return explicit.Answer(mean, cov, sum(a.log_evidence for a in each))


@pytest.mark.parametrize("blocks", ["random", "clustered"])
def test_a_committee_is_that_of_explicit_matrices(blocks):
    gp = model("bcm", n_blocks=4, blocks=blocks).fit(X, Y)
    member = np.array(
        [np.flatnonzero((gp.inducing_points_ == x).all(-1).any(-1)) for x in X],
        dtype=object,
    )
    rng = np.random.default_rng(int(np.random.RandomState(0).randint(2**31 - 1)))
    columns = _columns(rng)
    distinct, place = distinct_rows(X)
    labels = row_subsets.BLOCKS[blocks](distinct, 4, columns, rng)[place]
    assert all(label in of for label, of in zip(labels, member, strict=True)), (
        "a member holds its own rows"
    )
    assert np.bincount(labels).min() >= 7 and np.bincount(labels).max() <= 8
    assert_is(gp, brute_committee(labels, NEW), atol=1e-6)
    alone = [brute_committee(labels, x[None]) for x in NEW]
    mean, sd = gp.predict(NEW, return_std=True, noise=False)
    np.testing.assert_allclose(mean, [a.mean[0] for a in alone], atol=1e-8)
    np.testing.assert_allclose(sd, [np.sqrt(a.cov[0, 0]) for a in alone], atol=1e-8)


def _columns(rng):
    """What the estimator's own start draws before it deals out blocks."""

    return Table(X, np.zeros(31, dtype=int), np.ones(31), 1).start(rng).columns


def test_a_committee_of_one_is_exact():
    assert_is(model("bcm", n_blocks=1).fit(X, Y), EXACT)


# --- conjugate gradients -----------------------------------------------------------------------------------
def test_conjugate_gradients_are_exact_at_convergence():
    gp = model("cg", inducing=Z, cg_tol=1e-12).fit(X, Y)
    assert_is(gp, EXACT, evidence=False)
    bound = explicit.sparse(explicit.kernels(k, Z, X, NEW), Y, NOISE, "vi").log_evidence
    assert gp.log_marginal_likelihood_ == gp.elbo_ == pytest.approx(bound, abs=1e-8)


def test_weights_divide_the_noise_of_conjugate_gradients_and_of_nystrom():
    times = np.random.default_rng(1).integers(1, 4, 31)
    again = np.repeat(X, times, axis=0), np.repeat(Y, times)
    for method, options in {
        "cg": {"inducing": Z},
        "nystrom": {"inducing": Z},
        "sd": {"n_inducing": 1.0},
        "bcm": {"n_blocks": 1},
    }.items():
        one, other = (
            model(method, **options).fit(X, Y, times),
            model(method, **options).fit(*again),
        )
        for a, b in zip(
            one.predict(NEW, return_std=True, noise=False),
            other.predict(NEW, return_std=True, noise=False),
            strict=True,
        ):
            np.testing.assert_allclose(a, b, atol=1e-6)


def test_conjugate_gradients_that_do_not_converge_say_so():
    with pytest.warns(ConvergenceWarning, match="tol=1e-300"):
        model("cg", inducing=Z, cg_tol=1e-300).fit(X, Y)
