"""Laplace's method, and methods without sparsity: Z = X."""

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import expit, softmax
from scipy.stats import entropy, norm
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF as TheirRBF
from sklearn.gaussian_process.kernels import ConstantKernel

from cavity import BadOption, load
from cavity.common.column_statistics import distinct_rows
from cavity.kernels import RBF
from cavity.prediction.predict import predict_latent
from reference import kernels as written_out
from reference.brute_ep import full_multiclass_ep, full_multiclass_predict
from reference.laplace import logistic_laplace, softmax_laplace
from reference.textbook import full_binary_ep, full_binary_predict
from support import (
    assert_gradient,
    central_differences,
    classifier,
    converge,
    latent_columns,
    machine,
    offered,
    slow,
    toy,
    without_warnings,
)

LENGTHSCALE, VARIANCE = np.array([0.9, 1.4]), 2.0
NEW = np.random.default_rng(9).normal(size=(7, 2))


def k(A, B, c=0):
    return written_out.rbf(A, B, LENGTHSCALE * (1 + 0.3 * c), VARIANCE * (1 + 0.2 * c))


def ours(C=1):
    scale = 1 + 0.3 * np.arange(C)[:, None]
    return RBF(LENGTHSCALE * scale, VARIANCE * (1 + 0.2 * np.arange(C)))


def full(method, C=1, **options):
    settings = {"learn": (), "jitter": 1e-12, "tol": 1e-12, "device": "cpu"}
    return classifier(method, inducing=None, kernel=ours(C), **settings | options)


# --- two classes -------------------------------------------------------------------------------------------
def test_binary_laplace_is_scikit_learns():
    X, y = toy(40, 2)
    kernel = ConstantKernel(VARIANCE) * TheirRBF(LENGTHSCALE)
    theirs = GaussianProcessClassifier(kernel, optimizer=None).fit(X, y)
    gp = full("laplace").fit(X, y)
    assert gp.log_marginal_likelihood_ == pytest.approx(
        theirs.log_marginal_likelihood_value_, abs=1e-6
    )
    residual = (
        theirs.base_estimator_.y_train_ - theirs.base_estimator_.pi_
    )  # at the mode, f̂ = K (y − π)
    for rows in (X, NEW):
        np.testing.assert_allclose(
            latent_columns(gp, rows)[0][:, 0], kernel(rows, X) @ residual, atol=1e-6
        )
    # theirs averages the logistic curve by five error functions
    np.testing.assert_allclose(
        gp.predict_proba(NEW), theirs.predict_proba(NEW), atol=3e-4
    )


def test_the_three_predictives_are_those_of_explicit_matrices():
    """E σ(f), σ(m/√(1 + πv/8)) and σ(m); the last has the same most probable class."""
    X, y = toy(40, 2)
    exact = logistic_laplace(k(X, X), 2 * y - 1, k(NEW, X), np.diag(k(NEW, NEW)))
    m, v = exact.mean, exact.var
    average = [
        quad(lambda z, i=i: norm.pdf(z) * expit(m[i] + np.sqrt(v[i]) * z), -9, 9)[0]
        for i in range(len(NEW))
    ]
    expected = {
        "quadrature": np.array(average),
        "probit": expit(m / np.sqrt(1 + np.pi * v / 8)),
        "mode": expit(m),
    }
    for how, p in expected.items():
        gp = full("laplace", predictive=how).fit(X, y)
        assert gp.log_marginal_likelihood_ == pytest.approx(
            exact.log_evidence, abs=1e-6
        )
        found = gp.predict_proba(NEW)[:, 1]
        np.testing.assert_allclose(found, p, rtol=0, atol=1e-7)
        assert np.array_equal(found > 0.5, expected["quadrature"] > 0.5)
        assert np.abs(p - expected["quadrature"]).max() > 1e-3 or how == "quadrature"
    assert np.abs(expected["probit"] - expected["quadrature"]).max() < 0.02


def test_vi_predicts_by_the_same_formula():
    X, y = toy(40, 2)
    given = {"likelihood": "softmax", "inducing": None, "learn": (), "random_state": 0}
    gp = classifier("vi", predictive="probit", **given).fit(X, y)
    m, v = (a[:, 0] for a in latent_columns(gp, NEW))
    np.testing.assert_allclose(
        gp.predict_proba(NEW)[:, 1], expit(m / np.sqrt(1 + np.pi * v / 8)), atol=1e-12
    )


def test_the_maximum_of_the_laplace_evidence_is_scikit_learns():
    """Begun there, where our weak prior on the kernel's parameters has its centre, a
    fit stays there.
    """
    X, y = toy(40, 2)
    kernel = ConstantKernel(VARIANCE) * TheirRBF(LENGTHSCALE)
    best = GaussianProcessClassifier(kernel).fit(X, y)
    found = best.kernel_
    start = RBF(found.k2.length_scale, found.k1.constant_value)
    gp = classifier(
        "laplace", inducing=None, kernel=start, jitter=1e-10, tol=0, max_epochs=5
    ).fit(X, y)
    assert gp.log_marginal_likelihood_ == pytest.approx(
        best.log_marginal_likelihood_value_, abs=1e-5
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("C", [2, 3])
def test_the_gradient_of_laplace_is_that_of_its_evidence(C, weighted):
    """Finite differences with the mode found again; few inducing points, so that the
    residual takes part.
    """
    X, y = toy(14, C)
    Z = np.random.default_rng(1).normal(size=(1 if C == 2 else C, 4, 2))
    weight = np.random.default_rng(2).choice([0.4, 1.0, 2.0], 14) if weighted else None
    run = machine(
        X,
        y,
        Z,
        kernel=RBF(1.2, 1.5),
        method="laplace",
        optimizer="lbfgs",
        weight=weight,
    )
    start = converge(run)

    def evidence(theta):
        return run.evidence(
            converge(run, start._replace(theta=torch.tensor(theta)), tol=1e-13)
        )

    theta = start.theta.numpy()
    assert_gradient(
        offered(run, start), central_differences(evidence, theta, 1e-5), rel=1e-6
    )


def test_softmax_laplace_is_that_of_explicit_matrices():
    X, y = toy(18, 3)
    gp = full("laplace", 3).fit(X, y)
    exact = softmax_laplace([k(X, X, c) for c in range(3)], y)
    assert gp.log_marginal_likelihood_ == pytest.approx(exact.log_evidence, abs=1e-8)
    mean, var = latent_columns(gp, X)
    np.testing.assert_allclose(mean.T, exact.mode, atol=1e-7)
    np.testing.assert_allclose(var.T.reshape(-1), np.diag(exact.cov), atol=1e-7)


def test_softmax_laplace_couples_its_classes():
    """Probabilities at training rows are averages over the joint Gaussian of explicit
    matrices.
    """
    X, y = toy(18, 3)
    exact = softmax_laplace([k(X, X, c) for c in range(3)], y)
    p = full("laplace", 3).fit(X, y).predict_proba(X)
    rng = np.random.default_rng(0)
    for n in (0, 5):
        at = np.arange(3) * 18 + n
        f = rng.multivariate_normal(
            exact.mode[:, n], exact.cov[np.ix_(at, at)], 400_000
        )
        e = np.exp(f - f.max(1, keepdims=True))
        np.testing.assert_allclose(
            p[n], (e / e.sum(1, keepdims=True)).mean(0), atol=4e-3
        )


@pytest.mark.parametrize(
    ("C", "options"),
    [
        (2, {}),
        (2, {"predictive": "probit"}),
        (2, {"predictive": "mode"}),
        (3, {}),
        (3, {"dtype": "float32"}),
        (2, {"method": "vi", "bound": "jaakkola"}),
        (2, {"method": "vi", "likelihood": "softmax", "predictive": "probit"}),
        (2, {"method": "vi", "likelihood": "softmax"}),
    ],
    ids=str,
)
def test_a_saved_model_predicts_the_same_bits(tmp_path, C, options):
    X, y = toy(30, C)
    gp = classifier(
        **{"method": "laplace", "n_inducing": 6, "max_epochs": 2, "tol": 0.1} | options
    ).fit(X, y)
    gp.save(tmp_path / "model")
    np.testing.assert_array_equal(
        load(tmp_path / "model").predict_log_proba(NEW), gp.predict_log_proba(NEW)
    )


# --- Z = X -------------------------------------------------------------------------------------------------
def test_binary_ep_without_sparsity_is_the_textbooks():
    X, y = toy(25, 2)
    gp = full("ep", noise=1.0).fit(X, y)
    textbook = full_binary_ep(k(X, X), 2 * y - 1)
    assert gp.log_marginal_likelihood_ == pytest.approx(textbook.log_z, abs=1e-8)
    expected = full_binary_predict(textbook, k(X, X), k(NEW, X), np.diag(k(NEW, NEW)))
    np.testing.assert_allclose(gp.predict_proba(NEW)[:, 1], expected, atol=1e-7)


def test_multiclass_ep_without_sparsity_is_the_sequential_one():
    X, y = toy(7, 3)
    gp = full("ep", 3, noise=0.3).fit(X, y)
    slow = full_multiclass_ep([k(X, X, c) for c in range(3)], y, 0.3)
    assert gp.log_marginal_likelihood_ == pytest.approx(slow.log_z, abs=1e-6)
    Kstar, kss = (
        [k(NEW, X, c) for c in range(3)],
        [np.diag(k(NEW, NEW, c)) for c in range(3)],
    )
    np.testing.assert_allclose(
        gp.predict_proba(NEW), full_multiclass_predict(slow, Kstar, kss), atol=1e-5
    )


@pytest.mark.parametrize("C", [2, slow(3)])
def test_the_gradient_without_sparsity_is_that_of_the_evidence(C):
    X, y = toy(5, C)
    run = machine(
        X, y, X[None], kernel=RBF(1.2, 1.5), learn=("kernel", "noise"), jitter=1e-10
    )
    start = converge(run)

    def evidence(theta):
        return run.evidence(
            converge(run, start._replace(theta=torch.tensor(theta)), tol=1e-13)
        )

    slope = central_differences(evidence, start.theta.numpy(), 1e-5)
    assert_gradient(offered(run, start), slope, rel=1e-5)


@pytest.mark.parametrize("method", ["ep", "sep", "gfitc", "vi", "laplace"])
def test_inducing_none_is_every_distinct_row_and_stays_there(method):
    X, y = toy(15, 3)
    gp = classifier(
        method,
        inducing=None,
        max_epochs=2,
        tol=0.1,
        random_state=0,
        learn=("kernel", "inducing"),
    )
    gp.fit(np.r_[X, X[:3]], np.r_[y, y[:3]])
    np.testing.assert_array_equal(
        gp.inducing_points_, np.repeat(distinct_rows(X)[0][None], 3, axis=0)
    )


# --- refusals ----------------------------------------------------------------------------------------------
def test_what_laplace_does_not_use_is_refused():
    X, y = toy(20, 2)
    for options, words in (
        ({"noise": 0.5}, "noise=0.5 is not used by method='laplace'"),
        ({"batch_size": 5}, "needs all rows at once"),
        ({"predictive": "exact"}, "'quadrature', 'probit', 'mode'"),
        ({"schedule": "inner-exact"}, "inner-exact"),
    ):
        with pytest.raises(BadOption, match=words):
            classifier("laplace", **options).fit(X, y)
    for how in ("probit", "mode"):
        with pytest.raises(BadOption, match="formula for two classes"):
            classifier("laplace", predictive=how).fit(*toy(20, 3))
        gp = classifier("laplace", predictive=how, max_epochs=1).fit(X, y)
        with pytest.raises(BadOption, match="not the average over f"):
            gp.predict_uncertainty(X)
    with pytest.raises(BadOption, match="likelihood='softmax'"):
        classifier("vi", likelihood="probit", predictive="probit").fit(X, y)
    with pytest.raises(BadOption, match="'quadrature', 'probit'"):
        classifier("vi", likelihood="softmax", predictive="mode").fit(X, y)
    with pytest.raises(BadOption, match="every row"):
        classifier("sep", inducing=None).fit(lambda: iter([(X, y)]))


def test_uncertainty_of_coupled_classes_is_monte_carlo_s():
    X, y = toy(40, 3, seed=3)
    with without_warnings():
        clf = classifier(
            "laplace", n_inducing=10, max_epochs=5, random_state=0, device="cpu"
        ).fit(X, y)
    found = clf.predict_uncertainty(X[:8])
    f = predict_latent(clf._fitted, X[:8])
    rng = np.random.default_rng(0)
    for i in range(8):
        draws = rng.multivariate_normal(f.mean[i], f.cov[i], 20_000)
        p = softmax(draws, axis=1)
        total, aleatoric = entropy(p.mean(0)), entropy(p, axis=1).mean()
        np.testing.assert_allclose(found.total[i], total, atol=0.01)
        np.testing.assert_allclose(found.aleatoric[i], aleatoric, atol=0.01)
        np.testing.assert_allclose(found.epistemic[i], total - aleatoric, atol=0.01)
    np.testing.assert_allclose(
        found.total, found.aleatoric + found.epistemic, atol=1e-10
    )
