"""The gradient of every method's objective against central differences, in every
parameter that it steps.
"""

import numpy as np
import pytest
import torch

from cavity.kernels import RBF
from objectives import converged_objective, fixed_site_evidence, objective_at
from support import (
    arbitrary,
    assert_gradient,
    central_differences,
    converge,
    machine,
    offered,
    slow,
    toy,
)

EVERYTHING = ("kernel", "noise", "inducing")
WEIGHTS = {
    False: None,
    True: np.random.default_rng(7).uniform(0.2, 3, 6),
    "whole": np.arange(6.0) % 3 + 1,
}


def setting(C, method, weighted=False, **options):
    """Every hyper-parameter learnt, each class with its own, and none at the centre of
    its prior.
    """
    X, y = toy(6, C, D=1)
    L = 1 if C == 2 else C
    rng = np.random.default_rng(5)
    Z = rng.normal(size=(L, 2, 1))
    kernel = RBF(rng.uniform(0.7, 1.6, (L, 1)), rng.uniform(0.8, 2, L))
    noise = rng.uniform(0.1, 0.4, L)
    given = {
        "kernel": kernel,
        "noise": noise,
        "weight": WEIGHTS[weighted],
        "learn": EVERYTHING,
        **options,
    }
    run = machine(X, y, Z, method=method, damping=0.5, **given)
    theta = run.state.theta + 0.1 * torch.tensor(rng.normal(size=len(run.state.theta)))
    return run._replace(state=run.state._replace(theta=theta))


def assert_at_the_fixed_point(run):
    rest = converge(run, tol=1e-11)
    # the objective is stationary in the sites: within 1e-7 of the fixed point it is
    # right to 1e-13
    expected = central_differences(
        converged_objective(run, rest, 1e-7), rest.theta.numpy(), 1e-4
    )
    assert_gradient(offered(run, rest), expected)


def assert_as_it_stands(run, state):
    assert_gradient(
        offered(run, state),
        central_differences(objective_at(run, state), state.theta.numpy(), 1e-4),
    )


WITH_EPSILON = (*EVERYTHING, "epsilon")


@pytest.mark.parametrize(
    ("C", "weighted"), [slow(2, False), (2, "whole"), slow(3, False)]
)
def test_robust_ep_at_the_fixed_point_with_ep_converged_again(C, weighted):
    """ε too; a row of whole weight is that many rows."""
    run = setting(C, "rep", weighted, learn=WITH_EPSILON, epsilon=0.1)
    assert len(run.engine.parameters["likelihood.0"]) == 1  # the log-odds of ε
    assert_at_the_fixed_point(run)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("C", [2, 3])
def test_tied_robust_ep_with_its_sums_held_fixed(C, weighted):
    run = setting(C, "rep", weighted, sites="tied", learn=WITH_EPSILON, epsilon=0.1)
    assert_as_it_stands(run, arbitrary(run.state))


@pytest.mark.parametrize(("C", "weighted"), [slow(2, False), (2, True), slow(3, False)])
def test_power_ep_at_the_fixed_point_with_ep_converged_again(C, weighted):
    assert_at_the_fixed_point(setting(C, "pep", weighted, power=0.4))


@pytest.mark.parametrize(
    ("C", "weighted"), [slow(2, False), (3, False), slow(3, "whole")]
)
def test_gfitc_at_the_fixed_point_with_ep_converged_again(C, weighted):
    assert_at_the_fixed_point(setting(C, "gfitc", weighted))


VARIATIONAL = {
    "robust-max": {"likelihood": "robust-max", "learn": WITH_EPSILON, "epsilon": 0.05},
    "softmax": {"likelihood": "softmax"},
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("likelihood", VARIATIONAL)
@pytest.mark.parametrize("C", [2, 3])
def test_the_bound_at_any_q(C, likelihood, weighted):
    """q held fixed in whitened space, whatever it is; ε too."""
    run = setting(C, "vi", weighted, **VARIATIONAL[likelihood])
    assert_as_it_stands(run, arbitrary(run.state))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("likelihood", VARIATIONAL)
@pytest.mark.parametrize("C", [2, 3])
def test_the_bound_in_the_mean_and_factor_of_q(C, likelihood, weighted):
    """Together with the hyper-parameters."""
    run = setting(C, "vi", weighted, q_update="gradient", **VARIATIONAL[likelihood])
    assert run.engine.sites.size == run.engine.shape[0] * (2 + 3)
    assert_as_it_stands(run, run.engine.sites.place(run.state))


@pytest.mark.parametrize("C", [2, 3])
def test_the_mean_and_factor_of_q_alone(C):
    run = setting(C, "vi", q_update="gradient", learn=())
    assert len(run.state.theta) == run.engine.sites.size
    assert_as_it_stands(run, run.engine.sites.place(run.state))


SHARED = {
    "SEP": ("sep", {}),
    "tied robust EP": ("rep", {"sites": "tied", "learn": WITH_EPSILON, "epsilon": 0.1}),
    "natural steps": ("vi", {"likelihood": "robust-max", "learn": WITH_EPSILON}),
    "softmax": ("vi", {"likelihood": "softmax"}),
    "gradient steps": (
        "vi",
        {"likelihood": "robust-max", "q_update": "gradient", "learn": WITH_EPSILON},
    ),
}


@pytest.mark.parametrize("name", SHARED)
def test_a_batch_s_gradient_is_its_share(name):
    """Mini-batches of one pass, scaled up: their mean is the gradient of the whole."""
    method, options = SHARED[name]
    run = setting(3, method, **options)
    state = run.engine.sites.adopt(arbitrary(run.state))
    parts = [
        offered(run, state, batch)
        for batch in run.rows.batches(3, torch.Generator().manual_seed(0))
    ]
    assert len(parts) == 2
    np.testing.assert_allclose(
        np.mean(parts, axis=0), offered(run, state), rtol=1e-9, atol=1e-11
    )


@pytest.mark.parametrize("C", [2, 3])
@pytest.mark.parametrize("method", ["rep", "pep"])
def test_inner_exact_at_any_sites(method, C):
    """(τ, ν) fixed; a, r, P, h and the cavities follow the hyper-parameters; ε too."""
    options = (
        {"learn": WITH_EPSILON, "epsilon": 0.1} if method == "rep" else {"power": 0.4}
    )
    run = setting(C, method, schedule="inner-exact", **options)
    state = arbitrary(run.state)
    expected = central_differences(
        fixed_site_evidence(run, state), state.theta.numpy(), 1e-4
    )
    run.engine.load(state.theta)
    assert_gradient(
        run.engine.exact_gradient(state, run.rows.whole()).numpy(), expected
    )
