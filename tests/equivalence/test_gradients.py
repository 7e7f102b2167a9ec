"""The gradient of log Z_q against central differences, in every hyper-parameter."""

import numpy as np
import pytest
import torch

import support
from cavity.kernels import RBF, Linear, Matern32, RationalQuadratic
from objectives import converged_objective, fixed_site_evidence, objective_at

KERNELS = {
    "rbf": lambda l, v: RBF(l, v),
    "matern32": lambda l, v: Matern32(l, v),
    "rational quadratic": lambda l, v: RationalQuadratic(l, v, 0.8),
    "sum": lambda l, v: RBF(l, v) + Linear(2.0, 0.3),
}


def setting(C, kernel, weighted=False, **options) -> support.Machine:
    """Every hyper-parameter learnt, each class with its own, and none at the centre of
    its prior.
    """
    X, y = support.toy(12, C)
    latents = 1 if C == 2 else C
    rng = np.random.default_rng(5)
    Z = rng.normal(size=(latents, 3, 2))
    weight = {
        False: None,
        True: rng.uniform(0.2, 3, 12),
        "lightly": rng.uniform(0.1, 0.8, 12),
    }[weighted]
    kernel = KERNELS[kernel](
        rng.uniform(0.7, 1.6, (latents, 2)), rng.uniform(0.8, 2, latents)
    )
    noise = rng.uniform(0.1, 0.4, latents)
    run = support.machine(
        X, y, Z, kernel=kernel, noise=noise, weight=weight, damping=0.8, **options
    )
    names = {name.split(".")[-1] for name, _ in run.engine.prior.named_parameters()}
    assert {"log_lengthscale", "log_variance", "log_noise", "inducing"} <= names
    theta = run.state.theta + 0.1 * torch.tensor(rng.normal(size=len(run.state.theta)))
    return run._replace(state=run.state._replace(theta=theta))


EP_CASES = [
    support.slow(2, "rbf", False),
    (2, "rbf", True),
    support.slow(2, "matern32", False),
    support.slow(2, "rational quadratic", False),
    support.slow(3, "rbf", False),
    support.slow(3, "rbf", True),
    (3, "matern32", False),
    support.slow(3, "rational quadratic", False),
]


@pytest.mark.parametrize(("C", "kernel", "weighted"), EP_CASES)
def test_ep_at_the_fixed_point_with_ep_converged_again(C, kernel, weighted):
    """The sites follow the hyper-parameters; only the factors' own derivative counts."""
    run = setting(C, kernel, weighted)
    rest = support.converge(run, tol=1e-11)
    # log Z_q is stationary in the sites: within 1e-8 of the fixed point it is right to
    # 1e-15
    expected = support.central_differences(
        converged_objective(run, rest, 1e-8), rest.theta.numpy(), 1e-4
    )
    support.assert_gradient(support.offered(run, rest), expected)


@pytest.mark.parametrize("weighted", [False, True, "lightly"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("C", [2, 3])
def test_sep_with_its_sums_held_fixed(C, kernel, weighted):
    run = setting(C, kernel, weighted, method="sep")
    state = support.arbitrary(run.state)
    expected = support.central_differences(
        objective_at(run, state), state.theta.numpy(), 1e-4
    )
    support.assert_gradient(support.offered(run, state), expected)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("C", [2, 3])
def test_inner_exact_at_any_sites(C, kernel, weighted):
    """(τ, ν) fixed; a, r, P, h and the cavities follow the hyper-parameters."""
    run = setting(C, kernel, weighted, schedule="inner-exact")
    state = support.arbitrary(run.state)
    if weighted:  # totals of a row grow with its weight
        grown = run.rows.weight[:, None]
        state = state._replace(
            sites=state.sites._replace(
                tau=grown * state.sites.tau, nu=grown * state.sites.nu
            )
        )
    expected = support.central_differences(
        fixed_site_evidence(run, state), state.theta.numpy(), 1e-4
    )
    run.engine.load(state.theta)
    support.assert_gradient(
        run.engine.exact_gradient(state, run.rows.whole()).numpy(), expected
    )
    prior_slope = run.engine.hyper_prior.gradient(state.theta).numpy()
    support.assert_gradient(support.offered(run, state), expected + prior_slope)


@pytest.mark.parametrize("C", [2, 3])
def test_inner_exact_is_inner_approx_at_the_fixed_point(C):
    """log Z_q is stationary in the sites there, so it does not matter what is held
    fixed.
    """
    approx, exact = setting(C, "rbf"), setting(C, "rbf", schedule="inner-exact")
    rest = support.converge(approx, tol=1e-12)
    np.testing.assert_allclose(
        support.offered(exact, rest),
        support.offered(approx, rest),
        rtol=1e-6,
        atol=1e-8,
    )


@pytest.mark.parametrize("C", [2, 3])
def test_evidence_is_stationary_in_the_sites_at_the_fixed_point(C):
    run = setting(C, "rbf")
    rest = support.converge(run, tol=1e-12)
    rng = np.random.default_rng(0)

    def along(h, by):
        sites = rest.sites._replace(
            tau=rest.sites.tau + h * by[0], nu=rest.sites.nu + h * by[1]
        )
        return fixed_site_evidence(run, rest._replace(sites=sites))(rest.theta.numpy())

    for _ in range(5):
        by = [torch.tensor(rng.normal(size=rest.sites.tau.shape)) for _ in range(2)]
        assert (along(1e-4, by) - along(-1e-4, by)) / 2e-4 == pytest.approx(0, abs=1e-6)
        assert abs(along(0.1, by) - along(0, by)) > 1e-5
