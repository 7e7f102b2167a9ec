"""Quadratic bounds of the logistic likelihood.

They follow the formulas of the review, and are compared with the exact average.
"""

import numpy as np
import pytest
import torch
from scipy.special import expit

from cavity import BadOption
from cavity.kernels import RBF
from cavity.likelihoods import Jaakkola, Latents, Logistic, Taylor
from reference import bounds
from reference.kernels import rbf
from support import (
    arbitrary,
    assert_gradient,
    central_differences,
    classifier,
    converge,
    machine,
    offered,
    toy,
)

Z = np.random.default_rng(1).normal(size=(5, 2))
LENGTHSCALE, VARIANCE = np.array([1.1, 1.3]), 1.6
X, Y = toy(20, 2)


def gram(theta):
    """The Gram matrices for θ = (log lengthscales, log variance)."""
    ell, var = np.exp(theta[:2]), np.exp(theta[2])
    return bounds.Gram(rbf(Z, Z, ell, var), rbf(Z, X, ell, var), np.full(len(X), var))


THETA = np.log([*LENGTHSCALE, VARIANCE])


def run(bound, damping=1.0, learn=("kernel",)):
    kernel = RBF(LENGTHSCALE, VARIANCE)
    options = {
        "method": "vi",
        "bound": bound,
        "likelihood": "softmax",
        "noise": 0.0,
        "jitter": 0.0,
    }
    return machine(
        X, Y, Z[None], kernel=kernel, learn=learn, damping=damping, **options
    )


def whitened(mu, Sigma):
    """u = L w: mean and covariance of w."""
    L_inv = np.linalg.inv(np.linalg.cholesky(gram(THETA).mm))
    return L_inv @ mu, L_inv @ Sigma @ L_inv.T


def of(state):
    cov = np.linalg.inv(np.eye(len(Z)) + state.sums.P[0].numpy())
    return cov @ state.sums.h[0].numpy(), cov


def test_the_jaakkola_bound_is_below_the_average_and_touches_it():
    m, sd = np.meshgrid(np.linspace(-12, 12, 25), np.geomspace(0.01, 10, 20))
    f = Latents(
        torch.tensor(m.reshape(-1, 1)),
        torch.tensor(sd.reshape(-1, 1) ** 2),
        torch.zeros(m.size, 1),
    )
    y = torch.arange(m.size) % 2
    below, exact = Jaakkola().average(f, y), Logistic().average(f, y)
    assert (below.value <= exact.value + 1e-12).all()
    point = f._replace(var=torch.full_like(f.var, 1e-14))
    at_point = torch.nn.functional.logsigmoid((2 * y - 1)[:, None] * f.mean)[:, 0]
    torch.testing.assert_close(
        Jaakkola().average(point, y).value, at_point, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("m", [0.0, 1e-5, 0.3, -4.0, 30.0])
def test_the_derivatives_of_the_jaakkola_bound_are_those_of_its_value(m):
    at = [
        torch.tensor([[m]]).double().requires_grad_(),
        torch.tensor([[0.7]]).double().requires_grad_(),
    ]
    got = Jaakkola().average(Latents(*at, torch.zeros(1, 1)), torch.tensor([1]))
    dm, dv = torch.autograd.grad(got.value.sum(), at)
    torch.testing.assert_close((got.dm, got.dv), (dm, dv), rtol=1e-9, atol=1e-11)


def test_both_averages_are_those_of_their_parabolas_by_quadrature():
    """The parabola that touches log σ at the ξ of each, averaged numerically."""
    z, weight = np.polynomial.hermite_e.hermegauss(20)
    weight = weight / weight.sum()
    for m, var in ((0.3, 0.5), (-2.0, 4.0), (5.0, 0.1)):
        x = m + np.sqrt(var) * z
        f = Latents(*torch.tensor([[[m]], [[var]], [[0.0]]], dtype=torch.float64))
        xi = np.hypot(m, np.sqrt(var))
        touching = (
            np.log(expit(xi))
            + (x - xi) / 2
            - bounds.jaakkola_lambda(xi) * (x**2 - xi**2)
        )
        s = expit(m)
        taylor = np.log(s) + (1 - s) * (x - m) - 0.5 * s * (1 - s) * (x - m) ** 2
        y = torch.tensor([1])
        for likelihood, parabola in ((Jaakkola(), touching), (Taylor(), taylor)):
            value = float(likelihood.average(f, y).value)
            assert value == pytest.approx(weight @ parabola, rel=1e-12)


def test_one_step_is_the_closed_form_of_the_review():
    """From any q, a step of length one is (13) and (14) at ξ² = m² + S²."""
    machine_ = run("jaakkola")
    state = arbitrary(machine_.state)
    mu, Sigma = of(state)
    L, y, K = np.linalg.cholesky(gram(THETA).mm), 2.0 * Y - 1, gram(THETA)
    m, var = bounds.marginals(L @ mu, L @ Sigma @ L.T, K)
    expected = whitened(
        *bounds.optimum(bounds.jaakkola_lambda(np.sqrt(m**2 + var)), y / 2, K)
    )
    for a, b in zip(of(machine_.step(state)[0]), expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


@pytest.mark.parametrize(
    ("bound", "alternate", "value"),
    [
        ("jaakkola", bounds.jaakkola, bounds.jaakkola_bound),
        ("taylor", bounds.taylor, bounds.taylor_value),
    ],
)
def test_the_fixed_point_is_that_of_the_reviews_alternation(bound, alternate, value):
    machine_ = run(bound)
    y, K = 2.0 * Y - 1, gram(THETA)
    *q, xi = alternate(y, K)
    rest = converge(machine_)
    for a, b in zip(of(rest), whitened(*q), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8)
    assert machine_.evidence(rest) == pytest.approx(value(*q, xi, y, K), abs=1e-8)


def test_every_sweep_of_the_jaakkola_bound_climbs():
    machine_ = run("jaakkola")
    state, values = machine_.state, []
    for _ in range(15):
        state, info = machine_.step(state)
        values.append(float(info.evidence))
    assert (np.diff(values) > -1e-10).all() and values[-1] > values[0] + 1


def test_the_gradient_of_the_jaakkola_bound():
    machine_ = run("jaakkola")
    rest = converge(machine_)
    y = 2.0 * Y - 1

    def bound(theta):
        K = gram(theta)
        *q, xi = bounds.jaakkola(y, K)
        return bounds.jaakkola_bound(*q, xi, y, K)

    assert_gradient(
        offered(machine_, rest), central_differences(bound, THETA, 1e-4), rel=1e-6
    )


def test_the_gradient_of_the_taylor_expansion_is_that_at_fixed_points_of_expansion():
    machine_ = run("taylor")
    rest = converge(machine_)
    y = 2.0 * Y - 1
    xi = bounds.taylor(y, gram(THETA))[2]
    value = lambda theta: bounds.taylor_value(
        *bounds.taylor_optimum(xi, y, gram(theta)), xi, y, gram(theta)
    )
    assert_gradient(
        offered(machine_, rest), central_differences(value, THETA, 1e-5), rel=1e-6
    )


def test_the_better_bound_is_the_larger():
    """At equal hyper-parameters Jaakkola's bound is below the exact average.

    Probabilities of the three are close.
    """
    fixed = {
        "kernel": RBF(LENGTHSCALE, VARIANCE),
        "n_inducing": 10,
        "learn": (),
        "tol": 1e-10,
        "random_state": 0,
    }
    exact, below, near = (
        classifier("vi", likelihood="softmax", bound=bound, **fixed).fit(X, Y)
        for bound in ("quadrature", "jaakkola", "taylor")
    )
    assert exact.elbo_ - 0.5 < below.elbo_ < exact.elbo_
    assert not hasattr(near, "elbo_")
    for other in (below, near):
        np.testing.assert_allclose(
            other.predict_proba(X), exact.predict_proba(X), atol=0.05
        )


def test_the_taylor_value_is_no_bound():
    f = Latents(
        torch.zeros(1, 1).double(), torch.full((1, 1), 9.0).double(), torch.zeros(1, 1)
    )
    high = Latents(
        torch.full((1, 1), 4.0).double(),
        torch.full((1, 1), 9.0).double(),
        torch.zeros(1, 1),
    )
    y = torch.tensor([1])
    gaps = [
        float(Taylor().average(g, y).value - Logistic().average(g, y).value)
        for g in (f, high)
    ]
    assert gaps[0] < 0 < gaps[1]


@pytest.mark.parametrize("bound", ["jaakkola", "taylor"])
def test_hyper_parameters_are_learnt_with_either(bound):
    options = {"n_inducing": 8, "random_state": 0, "tol": 1e-3}
    short, long = (
        classifier("vi", bound=bound, max_epochs=n, **options).fit(X, Y)
        for n in (1, 30)
    )
    assert long.log_marginal_likelihood_ > short.log_marginal_likelihood_ + 0.3


def test_a_bound_that_does_not_fit_is_refused():
    for options, words in (
        ({"bound": "bohning"}, "'quadrature', 'jaakkola', 'taylor'"),
        (
            {"bound": "jaakkola", "likelihood": "robust-max"},
            "belongs to the logistic likelihood",
        ),
        (
            {"bound": "taylor", "optimizer": "lbfgs"},
            "no objective that optimizer='lbfgs'",
        ),
        (
            {"bound": "taylor", "q_update": "gradient"},
            "no objective that q_update='gradient'",
        ),
        (
            {"bound": "jaakkola", "epsilon": 0.1},
            "epsilon=0.1 belongs to likelihood='robust-max'",
        ),
    ):
        with pytest.raises(BadOption, match=words):
            classifier("vi", **options).fit(X, Y)
    with pytest.raises(BadOption, match="for two classes"):
        classifier("vi", bound="jaakkola").fit(*toy(20, 3))
