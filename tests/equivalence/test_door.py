"""The engine's door against brute force, finite differences and the estimators: `infer`,
`evidence` and `fit` on plain arrays.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from cavity.engine import (
    EP,
    GFITC,
    GP,
    SEP,
    VI,
    Laplace,
    PowerEP,
    describe,
    evidence,
    fit,
    infer,
    make_hyper_prior,
)
from cavity.errors import BadInput, BadOption
from cavity.kernels import RBF, Linear
from cavity.likelihoods import Gaussian, ProbitPairs, RobustMax, Softmax
from reference import brute_ep
from reference import kernels as written_out
from reference.problems import hyper_parameters
from support import (
    assert_gradient,
    central_differences,
    classifier,
    regressor,
    toy,
    without_warnings,
)

NEW = np.random.default_rng(99).normal(size=(6, 2))
METHODS = {"ep": EP(), "sep": SEP()}


def problem(C, N=18, M=4, **options):
    """Rows, and a model whose hyper-parameters differ from class to class."""
    X, y = toy(N, C)
    Z, lengthscale, variance, noise = hyper_parameters(C, M)
    gp = GP(
        kernel=RBF(lengthscale, variance),
        likelihood=ProbitPairs().bind(C),
        inducing=Z,
        noise=noise,
        **options,
    )
    return X, y, gp


@pytest.mark.parametrize("method", ["ep", "sep"])
@pytest.mark.parametrize("C", [2, 3, 5])
def test_infer_is_brute_force(C, method):
    X, y, gp = problem(C)
    ks = written_out.one_per_class(
        written_out.rbf, gp.kernel.lengthscale, gp.kernel.variance
    )
    run = brute_ep.sparse_ep if method == "ep" else brute_ep.sep
    labels = 2 * y - 1 if C == 2 else y
    exact = run(X, labels, gp.inducing, ks, gp.noise)
    post = infer(gp, X, y, method=METHODS[method], tol=1e-11)
    assert post.residual < 1e-9
    assert post.log_evidence == pytest.approx(exact.log_z, rel=1e-10)
    np.testing.assert_allclose(post.q.mean, exact.mean, atol=1e-8)
    np.testing.assert_allclose(post.q.cov, exact.cov, atol=1e-8)
    mean, var = brute_ep.latent(exact, NEW)
    f = post.latent(NEW)
    np.testing.assert_allclose(f.mean.T, mean, atol=1e-8)
    np.testing.assert_allclose(f.var.numpy().T + gp.noise, var, atol=1e-8)
    proba = brute_ep.predict_proba(exact, NEW)
    np.testing.assert_allclose(post.predict(NEW), proba, atol=1e-8)


GRADIENTS = {
    "ep": (EP(), ProbitPairs(3), 0.2),
    "power ep": (PowerEP(removal=0.4), ProbitPairs(3), 0.2),
    "gfitc": (GFITC(), ProbitPairs(3), 0.2),
    "vi": (VI(), Softmax(3), 0.2),
    "laplace": (Laplace(), Softmax(3), 0.0),
    "learnt epsilon": (EP(), RobustMax(3, epsilon=0.1, learn=True), 0.2),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_the_gradient_is_that_of_the_value(name):
    method, likelihood, noise = GRADIENTS[name]
    X, y = toy(9, 3)
    gp = GP(
        kernel=RBF([0.8, 1.3], 1.2),
        likelihood=likelihood,
        inducing=NEW[:3],
        noise=noise,
    )

    def value(theta):
        return evidence(gp.with_theta(theta), X, y, method=method, tol=1e-11).value

    found = evidence(gp, X, y, method=method, tol=1e-11)
    theta = gp.theta.numpy()
    assert found.value == pytest.approx(value(theta), abs=1e-9)
    assert ("likelihood.0" in gp.names) == (name == "learnt epsilon")
    ways = np.random.default_rng(0).normal(size=(2, len(theta)))
    expected = central_differences(lambda x: value(theta + x @ ways), np.zeros(2), 1e-5)
    assert_gradient(ways @ found.gradient.numpy(), expected, 1e-5)


@pytest.mark.parametrize("method", ["ep", "sep"])
def test_the_estimator_has_the_door_s_numbers(method):
    X, y, gp = problem(3, N=40)
    weight = np.random.default_rng(0).uniform(0.3, 3, 40)
    clf = classifier(
        method,
        kernel=gp.kernel,
        inducing=gp.inducing,
        noise=gp.noise,
        learn=(),
        tol=0.0,
        max_epochs=300,
        damping=0.5,
        device="cpu",
    )
    with without_warnings():
        clf.fit(X, y, sample_weight=weight)
    post = infer(gp, X, y, method=METHODS[method], weight=weight, tol=1e-11)
    assert post.log_evidence == pytest.approx(clf.log_marginal_likelihood_, abs=1e-8)
    np.testing.assert_allclose(post.predict(NEW), clf.predict_proba(NEW), atol=1e-8)


@pytest.mark.parametrize("optimizer", ["sign", "adam", "lbfgs"])
def test_fit_on_all_rows_is_the_estimator_s(optimizer):
    X, y = toy(60, 3)
    Z = X[:8]
    options = dict(
        inducing=Z, optimizer=optimizer, batch_size=None, max_epochs=6, tol=0.0
    )
    clf = classifier("ep", share=None, device="cpu", random_state=0, **options)
    with without_warnings():
        clf.fit(X, y)
    gp = GP(
        kernel=RBF(),
        likelihood=ProbitPairs(3),
        inducing=np.repeat(Z[None], 3, 0),
        columns=describe(X),
    )
    found = fit(
        gp,
        X,
        y,
        method=EP(),
        steps=6,
        optimizer=optimizer,
        hyper_prior=make_hyper_prior(gp),
    )
    history = [row["objective"] for row in found.history]
    np.testing.assert_allclose(
        history, [row["objective"] for row in clf.history_], rtol=1e-9
    )
    assert found.posterior.log_evidence == pytest.approx(
        clf.log_marginal_likelihood_, rel=1e-9
    )
    np.testing.assert_allclose(
        found.posterior.predict(NEW), clf.predict_proba(NEW), atol=1e-9
    )
    np.testing.assert_allclose(
        found.gp.kernel.lengthscale, clf.kernel_.lengthscale, rtol=1e-9
    )


def test_targets_are_those_of_the_regressor():
    X, _ = toy(30, 2)
    y = np.sin(2 * X[:, 0])
    kernel = RBF([0.8, 1.3], 1.2)
    reg = regressor(
        "exact", kernel=kernel, noise=0.1, learn=(), normalize_y=False, jitter=1e-8
    )
    reg.fit(X, y)
    gp = GP(kernel=kernel, likelihood=Gaussian(0.1), inducing=X, noise=0.0, jitter=1e-8)
    post = infer(gp, X, y, method=PowerEP(damping=1.0))
    assert post.log_evidence == pytest.approx(reg.log_marginal_likelihood_, abs=1e-6)
    np.testing.assert_allclose(post.latent(NEW).mean[0], reg.predict(NEW), atol=1e-6)


@pytest.mark.parametrize("kernel", [RBF(), RBF() + Linear(fades=True)], ids=repr)
@pytest.mark.parametrize(
    "method", [EP(), SEP(), Laplace()], ids=lambda m: type(m).__name__
)
def test_marginals_are_those_of_the_joint(kernel, method):
    X, y = toy(40, 3)
    coupled = isinstance(method, Laplace)
    gp = GP(
        kernel=kernel,
        likelihood=Softmax(3) if coupled else ProbitPairs(3),
        inducing=X[:5],
        noise=0.0 if coupled else 0.1,
        columns=describe(X),
    )
    post = infer(gp, X, y, method=method)
    f = post.latent(NEW)
    joint = post.joint(NEW)
    torch.testing.assert_close(f.mean, joint.mean)
    torch.testing.assert_close(f.var, joint.cov.diagonal(dim1=1, dim2=2))
    draws = post.draw(NEW, 40_000)
    torch.testing.assert_close(draws.mean(0), joint.mean, atol=0.05, rtol=0)
    for c in range(3):
        torch.testing.assert_close(draws[:, c].T.cov(), joint.cov[c], atol=0.05, rtol=0)
    at_points = post.latent(X[:5])
    torch.testing.assert_close(at_points.mean, post.q.mean, atol=1e-4, rtol=0)
    same = post.predict(NEW)
    torch.testing.assert_close(same.sum(1), torch.ones(6, dtype=torch.float64))


def test_a_model_is_a_value():
    X, y, gp = problem(3)
    before = gp.theta.clone()
    learnt, post, _ = fit(gp, X, y, steps=3)
    evidence(learnt, X, y)
    torch.testing.assert_close(gp.theta, before, rtol=0, atol=0)
    assert (learnt.theta - before).abs().max() > 1e-3
    assert learnt.names == gp.names
    again = gp.with_theta(learnt.theta)
    torch.testing.assert_close(again.theta, learnt.theta)
    here = post.predict(NEW)
    fit(learnt, X, y, steps=2)
    torch.testing.assert_close(post.predict(NEW), here, rtol=0, atol=0)


def test_tensors_are_arrays_and_rows_decide_the_precision():
    X, y, gp = problem(3)
    post = infer(gp, X, y)
    same = infer(gp, torch.tensor(X), torch.tensor(y), weight=torch.ones(len(y)))
    torch.testing.assert_close(same.q.cov, post.q.cov, rtol=0, atol=0)
    single = infer(gp, X.astype(np.float32), y)
    assert single.engine.prior.center.dtype == torch.float32
    assert single.predict(NEW).dtype == torch.float64
    torch.testing.assert_close(
        single.predict(NEW), post.predict(NEW), atol=1e-3, rtol=0
    )


def test_whole_weights_are_repeated_rows():
    X, y, gp = problem(3)
    times = np.arange(18) % 3 + 1
    rows = np.repeat(np.arange(18), times)
    one = infer(gp, X, y, weight=times)
    other = infer(gp, X[rows], y[rows])
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=1e-8)


class Features(nn.Module):
    """A kernel on the outputs of a network."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(2, 2, dtype=torch.float64)
        self.log_scale = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def full(self, Z):
        return self.cross(Z, Z)

    def cross(self, Z, X):
        return self.log_scale.exp() * torch.exp(
            -0.5 * torch.cdist(self.net(Z), self.net(X)) ** 2
        )

    def diag(self, X):
        return self.log_scale.exp().expand(1, len(X))


def test_frozen_parameters_stay():
    X, y = toy(40, 3)
    kernel = Features()
    kernel.net.requires_grad_(False)
    gp = GP(kernel=kernel, likelihood=ProbitPairs(3), inducing=X[:5])
    assert not [name for name in gp.names if "net" in name]
    learnt, _, _ = fit(gp, X, y, steps=5)
    torch.testing.assert_close(learnt.kernel.net.weight, kernel.net.weight)
    assert not torch.equal(learnt.kernel.log_scale, kernel.log_scale)
    assert not learnt.kernel.net.weight.requires_grad


def test_errors_say_what_is_wrong():
    X, y, gp = problem(3)
    with pytest.raises(BadInput, match="weights have to be positive"):
        infer(gp, X, y, weight=np.zeros(18))
    with pytest.raises(BadInput, match="17"):
        infer(gp, X, y[:-1])
    with pytest.raises(BadOption, match="'z'"):
        GP(kernel=RBF(), likelihood=ProbitPairs(3), inducing=X, learn=frozenset("z"))
    with pytest.raises(BadOption, match="inducing"):
        GP(kernel=RBF(), likelihood=ProbitPairs(3), inducing=X[0])


def test_a_free_q_is_fitted_and_has_no_sweeps():
    X, y, gp = problem(3, learn=frozenset())
    gp = replace(gp, likelihood=Softmax(3))
    best = infer(gp, X, y, method=VI())
    free = VI(sites="free")
    found = fit(gp, X, y, method=free, optimizer="lbfgs", steps=300)
    assert found.posterior.log_evidence == pytest.approx(best.log_evidence, abs=1e-5)
    for ask in (infer, evidence):
        with pytest.raises(BadOption, match="no sweeps"):
            ask(gp, X, y, method=free)
