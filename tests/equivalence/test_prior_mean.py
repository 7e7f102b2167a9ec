"""EP with a prior mean: against explicit matrices, against itself without one, and its gradient against central differences."""

import numpy as np
import pytest
import torch

from cavity.inference import Offset
from cavity.inference.leave_one_out import leave_one_out
from cavity.inference.offset import UNIT
from cavity.kernels import RBF
from objectives import converged_objective, fixed_site_evidence, objective_at
from reference import brute_ep
from reference import kernels as written_out
from reference.problems import hyper_parameters
from support import (
    arbitrary,
    assert_gradient,
    central_differences,
    converge,
    latents,
    machine,
    offered,
    slow,
    toy,
)

NEW = np.random.default_rng(99).normal(size=(6, 2))
WEIGHTS = (0.7, 0.2)


def make_offset(C, N, members=2, seed=3):
    """An offset with random scores, those of one latent function for two classes."""
    scores = np.random.default_rng(seed).normal(size=(members, 1 if C == 2 else C, N))
    return Offset(torch.tensor(scores), (), torch.float64)


def setting(C, weighted=False, method="ep", weights=WEIGHTS, members=2, **options):
    """A machine with a prior mean whose weights are the last parameters, or stand before the factor's own."""
    X, y = toy(12, C)
    Z, lengthscale, variance, noise = hyper_parameters(C, 3)
    weight = np.random.default_rng(5).uniform(0.2, 3, 12) if weighted else None
    offset = make_offset(C, 12, members) if members else None
    run = machine(
        X, y, Z, kernel=RBF(lengthscale, variance), noise=noise, method=method, weight=weight, damping=0.8,
        offset=offset, **options,
    )  # fmt: skip
    if not members:
        return run
    with torch.no_grad():
        offset.weight.copy_(torch.tensor(weights) / UNIT)
    return run._replace(state=run.state._replace(theta=run.engine.theta()))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("C", [2, 3, 5])
def test_it_is_ep_with_a_constant_added_to_each_mean(C, weighted):
    X, y = toy(12, C)
    Z, lengthscale, variance, noise = hyper_parameters(C, 3)
    run = setting(C, weighted)
    rest = converge(run)
    shift = np.tensordot(WEIGHTS, run.engine.offset.scores.numpy() / UNIT, 1)
    ks = written_out.one_per_class(written_out.rbf, lengthscale, variance)
    weights = run.rows.weight.numpy() if weighted else None
    labels = 2 * y - 1 if C == 2 else y
    exact = brute_ep.shifted_ep(X, labels, Z, ks, shift, noise, weights=weights)
    assert run.evidence(rest) == pytest.approx(exact.log_z, rel=1e-9)
    found = latents(run, rest, NEW)
    for got, expected in zip(found, brute_ep.latent(exact, NEW), strict=True):
        np.testing.assert_allclose(got.T, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", ["ep", "sep", "rep", "pep", "gfitc", "vi"])
@pytest.mark.parametrize("C", [2, 3])
def test_weights_of_zero_give_the_same_bits_as_no_mean(C, method):
    plain, zero = setting(C, method=method, members=0), setting(C, method=method, weights=(0.0, 0.0))
    state, other = plain.state, zero.state
    for _ in range(4):
        (state, info), (other, same) = plain.step(state), zero.step(other)
    assert torch.equal(info.evidence, same.evidence)
    assert all(map(torch.equal, state.sums, other.sums))
    assert all(map(torch.equal, state.sites, other.sites))


@pytest.mark.parametrize(
    ("method", "C", "weighted"),
    [slow("ep", 2, True), slow("ep", 3, False), ("ep", 3, True), ("gfitc", 3, False), slow("rep", 3, False)],
)
def test_gradient_at_the_fixed_point_with_ep_converged_again(method, C, weighted):
    learn = ("kernel", "noise", "epsilon") if method == "rep" else ("kernel", "noise")
    run = setting(C, weighted, method, learn=learn)
    rest = converge(run, tol=1e-11)
    expected = central_differences(converged_objective(run, rest, 1e-8), rest.theta.numpy(), 1e-4)
    assert_gradient(offered(run, rest), expected)
    of_weights = expected[-3:-1] if method == "rep" else expected[-2:]  # ε is the very last parameter
    assert np.abs(of_weights).min() > 1e-3


@pytest.mark.parametrize("method", ["sep", "vi"])
def test_gradient_with_the_sums_held_fixed(method):
    run = setting(3, method=method)
    state = arbitrary(run.state)
    expected = central_differences(objective_at(run, state), state.theta.numpy(), 1e-4)
    assert_gradient(offered(run, state), expected)


@pytest.mark.parametrize("C", [2, 3])
def test_gradient_at_any_sites(C):
    run = setting(C, schedule="inner-exact")
    state = arbitrary(run.state)
    expected = central_differences(fixed_site_evidence(run, state), state.theta.numpy(), 1e-4)
    run.engine.load(state.theta)
    assert_gradient(run.engine.exact_gradient(state, run.rows.whole()).numpy(), expected)


@pytest.mark.parametrize("method", ["ep", "gfitc"])
def test_leave_one_out_adds_the_prior_mean_of_the_row(method):
    """At the same sites, the marginals of f differ from those without a prior mean by just that."""
    run = setting(3, method=method)
    rest = converge(run, tol=1e-9)
    offset = run.engine.offset
    ((batch, f),) = list(leave_one_out(run.engine, rest, run.rows.whole()))
    mean = np.tensordot(WEIGHTS, offset.scores.numpy() / UNIT, 1).T
    with torch.no_grad():
        offset.weight.zero_()
    ((_, without),) = list(
        leave_one_out(run.engine, rest._replace(theta=run.engine.theta()), run.rows.whole())
    )
    assert batch.index.tolist() == list(range(12))
    np.testing.assert_allclose(f.mean - without.mean, mean, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(f.var, without.var, rtol=1e-12)


def test_weights_are_never_negative():
    """At 0 a slope downwards counts as none; below it, which an optimiser may overshoot to, the mean is that of 0."""
    run = setting(3, weights=(0.0, 0.0))
    slope = offered(run, converge(run))[-2:]
    assert (slope >= 0).all()
    turned = setting(3, weights=(0.0, 0.0))
    turned.engine.offset.scores.mul_(-1)
    other = offered(turned, converge(turned))[-2:]
    np.testing.assert_array_equal((slope > 0) ^ (other > 0), [True, True])
    below = setting(3, weights=(-0.5, -0.1))
    assert below.evidence(converge(below)) == pytest.approx(run.evidence(converge(run)), rel=1e-12)
