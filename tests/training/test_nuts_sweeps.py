"""Small tables: the sweeps in NumPy are those of the engine, and so is their fixed point."""

import numpy as np
import pytest
import torch

import support
from cavity.explain import nuts, sampling
from cavity.explain.nuts_sweeps import ProbitSweeps, has_small_table
from cavity.kernels import RBF, Linear, Matern32
from cavity.rows.tables import Request, read_table_of_fit
from support import toy


def make_run(C, share=None, method="ep", over=("kernel", "noise"), constant=False, **options):
    X, y = toy(14, C)
    if constant:
        X = np.column_stack([X, np.ones(14)])
    model = support.classifier(method, n_inducing=4, max_epochs=3, random_state=0, share=share, **options)
    model.fit(X, y)
    table = read_table_of_fit(Request(X, y), model.class_weight, model._features(), model.classes_)
    return sampling.make_sampling_run(model._config(), model._fitted, table, over)


def with_random_sites(run):
    """The run's state with other sites, after one sweep of the engine that makes the sums fit them."""
    rng = np.random.default_rng(0)
    tau, nu = (torch.tensor(rng.uniform(0, 1, run.state.sites.tau.shape)) for _ in range(2))
    state = run.state._replace(
        sites=run.state.sites._replace(tau=tau, nu=nu), damping=torch.zeros_like(run.state.damping)
    )
    state, _ = run.engine.step(state, run.whole, run.reduce, None, True)
    return state._replace(damping=torch.ones_like(run.state.damping))


CASES = pytest.mark.parametrize(("C", "share"), [(2, None), (3, None), (4, "kernel"), (4, "prior")])


def sweep(run):
    """The sites after a sweep in NumPy, and after one of the engine, and what the engine says of its own."""
    cached, by = run.engine.freeze(run.state, run.rows).cached, ProbitSweeps(run)
    found = by.sweep(by.pack(run.state), cached.projection.a.numpy(), by.residual(cached.r.numpy()))
    after, info = run.engine.step(run.state, run.whole, run.reduce, None, True)
    return found, by.pack(after), info


@CASES
def test_a_sweep_is_that_of_the_engine(C, share):
    run = make_run(C, share)
    run.state = with_random_sites(run)
    found, expected, _ = sweep(run)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


class Squared(RBF):
    """The RBF by another name, which is left to torch."""


@pytest.mark.parametrize(
    ("C", "options"),
    [
        (2, {}),
        (4, {"share": "kernel"}),
        (4, {"share": "prior"}),
        (3, {"kernel": RBF() + Linear(fades=True)}),
        (3, {"kernel": Linear(), "share": "kernel", "over": "noise"}),
        (3, {"kernel": RBF(), "over": "kernel"}),
        (3, {"kernel": RBF() + Linear(), "constant": True}),  # shares the lengthscale of the column before it
        (3, {"kernel": Squared()}),
        (3, {"kernel": RBF(), "inducing": "spectrum", "over": "kernel"}),
        (3, {"kernel": Matern32() + RBF()}),
    ],
)
def test_value_gradient_and_state_at_the_fixed_point_are_those_of_the_engine(C, options):
    run = make_run(C, **options)
    by_engine, by_sweeps = nuts.LogDensity(run, 1e-10), nuts.LogDensity(run, 1e-10)
    assert by_sweeps.sweeps is not None
    by_engine.sweeps = None
    theta = run.state.theta.numpy() + 0.2
    value, gradient = by_engine(theta)
    found, slope = by_sweeps(theta)
    assert found == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(slope, gradient, rtol=1e-6, atol=1e-7)
    for one, other in zip(by_sweeps.at(theta)[1:3], by_engine.at(theta)[1:3], strict=True):
        for x, y in zip(one, other, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-7)


def test_sites_that_leave_no_cavity_are_kept():
    run = make_run(3)
    state = with_random_sites(run)
    state.sites.tau[0] = 1e6
    run.state = state._replace(damping=torch.zeros_like(state.damping))
    run.state, _ = run.engine.step(run.state, run.whole, run.reduce, None, True)
    run.state = run.state._replace(damping=torch.ones_like(state.damping))
    found, expected, info = sweep(run)
    assert int(info.skipped) > 0
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


def test_far_in_the_tail_a_sweep_is_that_of_the_engine():
    run = make_run(3)
    state = with_random_sites(run)
    state.sites.nu.copy_(torch.where(torch.arange(14)[:, None] == 0, -4e3, state.sites.nu))
    state = state._replace(damping=torch.zeros_like(state.damping))
    run.state, _ = run.engine.step(state, run.whole, run.reduce, None, True)
    run.state = run.state._replace(damping=torch.ones_like(state.damping))
    found, expected, _ = sweep(run)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


def test_where_the_covariance_has_no_factor_there_is_no_fixed_point():
    run = make_run(3)
    far = np.full(len(run.state.theta), 1e4)
    assert ProbitSweeps(run).evaluate(far, 1e-3, 50) is None and ProbitSweeps(run).at(far, 1e-3, 50) is None


def test_other_engines_are_left_to_torch():
    X, y = toy(14, 3)
    weight = np.linspace(0.5, 2, 14)
    model = support.classifier("ep", n_inducing=4, max_epochs=3, random_state=0).fit(X, y, weight)
    request = Request(X, y, sample_weight=weight)
    table = read_table_of_fit(request, None, model._features(), model.classes_)
    weighted = sampling.make_sampling_run(model._config(), model._fitted, table, ("kernel", "noise"))
    assert not has_small_table(weighted)
    assert has_small_table(make_run(3, kernel=Matern32()))
    assert not has_small_table(make_run(3, method="rep"))


@pytest.mark.parametrize(
    ("method", "options", "plain"),
    [
        ("ep", {}, True),
        ("rep", {}, True),
        ("ep", {"weight": np.linspace(0.5, 2, 14)}, False),
        ("ep", {"dtype": "float32"}, False),
        ("ep", {"schedule": "inner-exact"}, False),
        ("sep", {}, False),
        ("pep", {}, False),
        ("gfitc", {}, False),
        ("vi", {}, False),
        ("laplace", {}, False),
    ],
)
def test_which_engines_have_plain_sites(method, options, plain):
    X, y = toy(14, 3)
    assert support.machine(X, y, X[:4], method=method, **options).engine.has_plain_sites is plain
