"""Different ways of saying or computing the same model give the same result."""

import numpy as np
import pytest
import torch

from cavity.kernels import RBF, Matern52
from cavity.likelihoods import ProbitPairs
from reference import brute_ep
from reference import kernels as written_out
from support import Machine, converge, latents, machine, toy

NEW = np.random.default_rng(99).normal(size=(5, 2))


def problem(C=3, M=4):
    X, y = toy(20, C)
    rng = np.random.default_rng(C)
    return X, y, rng.normal(size=(1 if C == 2 else C, M, 2))


def steps(run: Machine, optimiser=None, count=4):
    state = run.state
    for _ in range(count):
        state, info = run.step(state, optimiser=optimiser)
        assert not info.failed
    return state, info


class Climb:
    """Plain gradient ascent, so that a step shows the gradient."""

    def init(self, theta):
        return ()

    def step(self, state, theta, gradient, rate):
        return theta + 1e-3 * gradient, state


@pytest.mark.parametrize("method", ["ep", "sep"])
@pytest.mark.parametrize("C", [2, 3])
@pytest.mark.parametrize("chunk", [1, 7, 19])
def test_a_batch_in_pieces_is_the_batch(C, method, chunk):
    """Sites, sums, objective and hyper-parameter steps."""
    X, y, Z = problem(C)
    weight = np.random.default_rng(0).uniform(0.3, 2, 20)
    options = dict(method=method, weight=weight, damping=0.5)
    whole, info = steps(machine(X, y, Z, **options), Climb())
    pieces, info_pieces = steps(machine(X, y, Z, chunk=chunk, **options), Climb())
    for a, b in zip(
        (*whole.sums, *whole.sites, whole.theta),
        (*pieces.sums, *pieces.sites, pieces.theta),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(
        info.objective, info_pieces.objective, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("method", ["ep", "sep"])
@pytest.mark.parametrize("share", ["kernel", "inducing", "both"])
def test_shared_is_equal_copies(share, method):
    """At the start nothing tells them apart; the shared gradient is the sum of the
    copies'.
    """
    X, y, Z = problem()
    Z = np.stack([Z[0]] * 3)
    kernel = lambda: RBF(1.2, 0.8)
    shared, one = steps(
        machine(X, y, Z, kernel=kernel(), noise=0.2, share=share, method=method)
    )
    copies, three = steps(machine(X, y, Z, kernel=kernel(), noise=0.2, method=method))
    for a, b in zip(shared.sums, copies.sums, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(one.evidence, three.evidence, rtol=1e-12, atol=0)

    sums = []
    for how in (share, None):
        run = machine(X, y, Z, kernel=kernel(), noise=0.2, share=how, method=method)
        moved, _ = steps(run, Climb(), 1)
        run.engine.load(moved.theta - run.state.theta)
        sums.append(
            {name: p.detach().sum(0) for name, p in run.engine.prior.named_parameters()}
        )
    for name, moved in sums[0].items():
        torch.testing.assert_close(
            moved, sums[1][name], rtol=1e-9, atol=1e-12, msg=name
        )


@pytest.mark.parametrize("method", ["ep", "sep"])
def test_two_latent_functions_for_two_classes(method):
    """The pairwise factor with C = 2, which GPClassifier does not use, against the
    brute force.
    """
    X, y, _ = problem(2)
    Z, noise = np.random.default_rng(4).normal(size=(2, 4, 2)), np.array([0.1, 0.3])
    options = dict(
        kernel=Matern52(1.3, 1.5), noise=noise, learn=(), method=method, damping=0.5
    )
    run = machine(X, y, Z, factor=ProbitPairs(2), one_each=True, **options)
    assert run.engine.prior.n_latent == 2
    rest = converge(run)
    k = lambda A, B: written_out.matern52(A, B, 1.3, 1.5)
    result = (brute_ep.sparse_ep if method == "ep" else brute_ep.sep)(
        X, y, Z, [k, k], noise
    )
    assert run.evidence(rest) == pytest.approx(result.log_z, rel=1e-10)
    mean, var = brute_ep.latent(result, NEW)
    f = latents(run, rest, NEW)
    np.testing.assert_allclose(f.mean.T, mean, atol=1e-8)
    np.testing.assert_allclose(f.var.T, var, rtol=1e-8)


@pytest.mark.parametrize("method", ["ep", "sep"])
@pytest.mark.parametrize("chunk", [1, 4])
def test_a_mini_batch_in_pieces_is_the_mini_batch(method, chunk):
    X, y, Z = problem()
    after = []
    for size in (None, chunk):
        run = machine(X, y, Z, method=method, chunk=size, damping=0.5)
        state = run.state
        for batch in run.rows.batches(9, torch.Generator().manual_seed(0)):
            state, _ = run.step(state, batch, Climb())
        after.append((*state.sums, *state.sites, state.theta, state.clock))
    for a, b in zip(*after, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
