"""GPClassifier with every hyper-parameter given, against explicit matrices and inverses (C = 2…6)."""

from functools import partial

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF as SklearnRBF

from cavity import GPClassifier
from cavity.kernels import RBF, Matern32
from cavity.options import nest
from reference import brute_ep
from reference import kernels as written_out
from reference.problems import hyper_parameters
from reference.textbook import full_binary_ep, full_binary_predict
from support import slow, toy

CLASSES = [2, 3, 4, 5, 6]
NEW = np.random.default_rng(99).normal(size=(6, 2))


def setting(C, N=18, M=4):
    """Rows, inducing points and hyper-parameters that differ from class to class."""
    return *toy(N, C), *hyper_parameters(C, M)


def fit(X, y, Z, lengthscale, variance, noise, method="ep", kernel=RBF, weight=None, **options):
    """To rest: a fixed number of sweeps, more than any of these problems needs."""
    model = GPClassifier(
        method,
        **nest(
            kernel=kernel(lengthscale, variance),
            inducing=Z,
            noise=noise,
            learn=(),
            **{"tol": 0.0, "max_epochs": 160, "damping": 0.9, "device": "cpu", **options},
        ),
    )
    return model.fit(X, y, sample_weight=weight)


def oracle(X, y, Z, lengthscale, variance, noise, method="ep", weight=None, **options):
    ks = written_out.one_per_class(written_out.rbf, lengthscale, variance)
    if weight is not None:
        options["weights"] = weight
    run = brute_ep.sparse_ep if method == "ep" else brute_ep.sep
    return run(X, 2 * y - 1 if len(Z) == 1 else y, Z, ks, noise, **options)


def assert_same(model, result, log_z=1e-6, proba=1e-5, latent=1e-5):
    assert model.log_marginal_likelihood_ == pytest.approx(result.log_z, rel=log_z)
    np.testing.assert_allclose(
        model.predict_proba(NEW), brute_ep.predict_proba(result, NEW), rtol=0, atol=proba
    )
    for got, exact in zip(model.predict_latent(NEW), brute_ep.latent(result, NEW), strict=True):
        np.testing.assert_allclose(got, exact, rtol=latent, atol=latent)


@pytest.mark.parametrize("method", ["ep", "sep"])
@pytest.mark.parametrize("C", CLASSES)
def test_evidence_probabilities_and_latents(C, method):
    problem = setting(C)
    assert_same(fit(*problem, method=method), oracle(*problem, method=method), 1e-11, 1e-9, 1e-9)


@pytest.mark.parametrize("method", ["ep", "sep"])
@pytest.mark.parametrize("C", [2, 3, 6])
def test_a_small_tol_is_enough(C, method):
    """Stopped by tol instead of at rest: evidence to 1e-6 relative, probabilities to 1e-5."""
    problem = setting(C)
    model = fit(*problem, method=method, tol=1e-11, max_epochs=1000, damping=None)
    assert model.n_epochs_ < 1000
    assert_same(model, oracle(*problem, method=method), 1e-6, 1e-5, 1e-4)


@pytest.mark.parametrize("C", [slow(2), 3, slow(5)])
def test_weights(C):
    """Fractions, whole numbers, and both extremes."""
    problem = setting(C)
    weight = np.random.default_rng(1).uniform(0.1, 4, 18)
    weight[:4] = 1.0, 3.0, 1e-4, 1e2
    assert_same(fit(*problem, weight=weight), oracle(*problem, weight=weight), 1e-9, 1e-7, 1e-7)


@pytest.mark.parametrize("C", [2, slow(3)])
def test_weights_below_one_everywhere(C):
    problem = setting(C)
    weight = np.random.default_rng(2).uniform(0.05, 0.9, 18)
    assert_same(fit(*problem, weight=weight), oracle(*problem, weight=weight), 1e-9, 1e-7, 1e-7)


@pytest.mark.parametrize("method", ["ep", "sep"])
@pytest.mark.parametrize("C", [2, 3])
def test_whole_weights_are_repeated_rows(C, method):
    X, y, *given = setting(C)
    times = np.random.default_rng(3).integers(1, 4, len(X))
    repeated = oracle(np.repeat(X, times, axis=0), np.repeat(y, times), *given, method=method)
    assert_same(fit(X, y, *given, method=method, weight=times.astype(float)), repeated, 1e-9, 1e-7, 1e-7)


@pytest.mark.parametrize("method", ["ep", "sep"])
def test_one_prediction_row_for_each_class(method):
    """As many new rows as classes: nothing is transposed by mistake."""
    problem = setting(3)
    model, result = fit(*problem, method=method), oracle(*problem, method=method)
    np.testing.assert_allclose(
        model.predict_proba(NEW[:3]), brute_ep.predict_proba(result, NEW[:3]), rtol=0, atol=1e-9
    )


# --- without sparsity ------------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [3, 4])
def test_inducing_points_at_the_data_are_ep_without_sparsity(C):
    X, y, _, lengthscale, variance, noise = setting(C, N=12)
    model = fit(X, y, X, lengthscale, variance, noise, kernel=Matern32, jitter=0.0)
    ks = written_out.one_per_class(written_out.matern32, lengthscale, variance)
    full = brute_ep.full_multiclass_ep([k(X, X) for k in ks], y, noise)
    assert model.log_marginal_likelihood_ == pytest.approx(full.log_z, rel=1e-10)
    cross, diag = [k(NEW, X) for k in ks], [np.diag(k(NEW, NEW)) for k in ks]
    exact = brute_ep.full_multiclass_predict(full, cross, diag)
    np.testing.assert_allclose(model.predict_proba(NEW), exact, rtol=0, atol=1e-8)
    latent = brute_ep.full_multiclass_latent(full, cross, diag)
    for got, expected in zip(model.predict_latent(NEW), latent, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-8)


def test_two_classes_with_inducing_points_at_the_data_are_textbook_ep():
    """Rasmussen & Williams, algorithm 3.5: likelihood Φ(y f), which is noise = 1."""
    X, y, _, lengthscale, variance, _ = setting(2, N=16)
    model = fit(X, y, X, lengthscale, variance, 1.0, kernel=Matern32, jitter=0.0)
    k = partial(written_out.matern32, lengthscale=lengthscale[0], variance=variance[0])
    full = full_binary_ep(k(X, X), 2 * y - 1)
    assert model.log_marginal_likelihood_ == pytest.approx(full.log_z, rel=1e-11)
    p = full_binary_predict(full, k(X, X), k(NEW, X), np.diag(k(NEW, NEW)))
    np.testing.assert_allclose(model.predict_proba(NEW)[:, 1], p, rtol=0, atol=1e-9)


def test_two_classes_agree_with_laplace_where_it_is_plain():
    """scikit-learn's classifier has a logistic likelihood and Laplace's approximation: same side, similar odds."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-1.5, 0.7, (30, 2)), rng.normal(1.5, 0.7, (30, 2))])
    y = np.repeat([0, 1], 30)
    theirs = GaussianProcessClassifier(9.0 * SklearnRBF(1.5), optimizer=None).fit(X, y)
    ours = fit(
        X, y, X, np.array([[1.5, 1.5]]), np.array([9.0]), 3.0, tol=1e-8
    )  # Φ(x/√3) is near the logistic
    np.testing.assert_array_equal(ours.predict(NEW), theirs.predict(NEW))
    np.testing.assert_allclose(ours.predict_proba(NEW), theirs.predict_proba(NEW), atol=0.1)
