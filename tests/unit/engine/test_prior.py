"""The whitened projection against explicit inverses."""

import numpy as np
import pytest
import torch

from cavity.common.column_statistics import summarize
from cavity.kernels import RBF
from cavity.likelihoods import ProbitPairs
from cavity.prediction.model import record_model
from reference import kernels as written_out
from support import machine, toy

JITTER = 1e-6


def setting(C=3, learn=("kernel", "noise", "inducing"), **options):
    X, y = toy(12, C)
    X = X * [1.0, 50.0] + [3.0, -200.0]
    rng = np.random.default_rng(1)
    Z = X[rng.choice(12, (C, 4))] + 0.1 * rng.normal(size=(C, 4, 2))
    lengthscale, variance = rng.uniform(1, 2, (C, 2)) * [1, 50], rng.uniform(0.5, 2, C)
    noise = rng.uniform(0.1, 0.5, C)
    run = machine(
        X,
        y,
        Z,
        kernel=RBF(lengthscale, variance),
        noise=noise,
        learn=learn,
        jitter=JITTER,
        **options,
    )
    return run.engine.prior, X, Z, lengthscale, variance, noise


@pytest.mark.parametrize("learn", [(), ("kernel", "noise", "inducing")])
def test_projection_by_explicit_inverses(learn):
    """aᵀa = k K⁻¹ k,  r = k(x, x) + s − aᵀa, in the user's units."""
    prior, X, Z, lengthscale, variance, noise = setting(learn=learn)
    p = prior.project(torch.tensor(X), torch.tensor(JITTER))
    assert not p.failed
    for c in range(3):
        k = lambda A, B, c=c: written_out.rbf(A, B, lengthscale[c], variance[c])
        K = k(Z[c], Z[c]) + JITTER * variance[c] * np.eye(4)
        cross = k(Z[c], X)
        gram = cross.T @ np.linalg.solve(K, cross)
        np.testing.assert_allclose(
            (p.a[c].mT @ p.a[c]).detach(), gram, rtol=1e-8, atol=1e-9
        )
        np.testing.assert_allclose(
            p.r[c].detach(), variance[c] + noise[c] - np.diag(gram), rtol=1e-8
        )


@pytest.mark.parametrize("learn", [(), ("kernel", "noise", "inducing")])
def test_a_model_with_that_factor_gives_the_same_projection(learn):
    prior, X, *_ = setting(learn=learn)
    jitter = torch.tensor(JITTER)
    with torch.no_grad():
        whole, lower = (
            prior.project(torch.tensor(X), jitter),
            prior.factor(jitter).lower,
        )
    q = torch.zeros(lower.shape[:2]), torch.eye(lower.shape[1]).expand_as(lower)
    a, r = record_model(prior, lower, *q, ProbitPairs(3)).project(X)
    np.testing.assert_allclose(whole.a, a, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(whole.r, r, rtol=1e-12, atol=1e-13)


def test_inducing_points_are_the_user_s_and_are_stepped_in_units_of_the_spread():
    prior, _, Z, *_ = setting(learn=())
    assert np.array_equal(prior.Z, Z), "to the last bit where they are not learnt"
    prior, _, Z, *_ = setting()
    np.testing.assert_allclose(prior.Z.detach(), Z, rtol=1e-13)
    prior, X, Z, *_ = setting()
    spread = summarize(X, np.ones(len(X)), np.random.default_rng(0)).spread
    with torch.no_grad():
        prior.inducing += 1.0
    np.testing.assert_allclose(
        prior.Z.detach().numpy() - Z, np.broadcast_to(spread, Z.shape), rtol=1e-9
    )


def test_the_residual_is_not_negative_where_a_row_is_an_inducing_point():
    X, y = toy(12, 3)
    run = machine(X, y, X, kernel=RBF(1.0), noise=0.0, learn=(), jitter=1e-12)
    r = run.engine.prior.project(torch.tensor(X), torch.tensor(1e-12)).r
    assert (r >= 0).all() and (r < 1e-9).all()
