"""Sparse-spectrum features.

Their limit is the kernel, and every model with them is linear in explicit features.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.base import clone

import cavity
from cavity import BadOption, GPClassifier, GPRegressor
from cavity.cli.describing import describe_model
from cavity.common.column_statistics import Columns
from cavity.engine.inference.engine import name_parameters
from cavity.engine.kernels.spectrum import Spectrum, draw_frequencies
from cavity.fitting.options import nest
from cavity.kernels import (
    RBF,
    Constant,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
)
from reference import brute_ep
from registered import assert_same_elsewhere
from support import (
    assert_gradient,
    central_differences,
    converge,
    machine,
    offered,
    slow,
    toy,
)

NEW = np.random.default_rng(99).normal(size=(6, 2))


def features(frequencies, variance, X):
    """φ(x), (N, 2H), of one latent function, written out."""
    angle = X @ frequencies.T
    return np.sqrt(variance / len(frequencies)) * np.hstack(
        [np.cos(angle), np.sin(angle)]
    )


def classifier(C, method="ep", **options):
    rng = np.random.default_rng(C)
    latents = 1 if C == 2 else C
    kernel = RBF(rng.uniform(0.6, 1.8, (latents, 2)), rng.uniform(0.5, 2, latents))
    given = dict(
        kernel=kernel,
        noise=rng.uniform(0.2, 0.6, latents),
        inducing="spectrum",
        n_inducing=6,
    )
    return GPClassifier(
        method, **nest(**{**given, "random_state": 0, "device": "cpu", **options})
    )


# --- the features ---------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [RBF, Matern12, Matern32, Matern52])
def test_products_of_features_approach_the_kernel_at_monte_carlos_rate(kernel):
    """The error is a mean of H bounded terms.

    It stays below 5 of its standard errors, and 100 times H has a tenth of it.
    """
    X = np.random.default_rng(1).normal(size=(12, 2))
    covariance = kernel([0.8, 1.7], 2.0)
    covariance.bind(1, Columns(np.zeros(2), np.ones(2), 1.0))
    exact = covariance.full(torch.tensor(X)[None])[0].detach().numpy()
    size = []
    for H in (100, 10_000):
        rng = np.random.default_rng(2)
        drawn = draw_frequencies(covariance, 2 * H, 1, 2, rng)
        phi = features(drawn[0, :H] / [0.8, 1.7], 2.0, X)
        error = np.abs(phi @ phi.T - exact)
        # a cosine's variance is at most ½ where its mean is 0
        assert error.max() < 5 * 2.0 / np.sqrt(2 * H)
        size.append(np.sqrt((error**2).mean()))
    assert 0.04 < size[1] / size[0] < 0.25


@pytest.mark.parametrize("shared", [None, "inducing", "both"])
def test_the_projection_has_these_features_and_no_residual_but_the_noise(shared):
    X, y = toy(20, 3)
    kernel = (
        RBF([0.8, 1.7], 1.5)
        if shared == "both"
        else RBF([[0.8, 1.7]] * 3, [0.5, 1.5, 2.0])
    )
    model = classifier(
        3, kernel=kernel, noise=0.3, share=shared, learn=(), max_epochs=3
    ).fit(X, y)
    prior = model._fitted.prior
    a, r = (
        t.detach().numpy() for t in prior.project(torch.tensor(X), torch.zeros(()))[:2]
    )
    for c in range(3):
        phi = features(model.frequencies_[c], model.kernel_.variance[c], X)
        np.testing.assert_allclose(a[c].T @ a[c], phi @ phi.T, atol=1e-13)
        np.testing.assert_allclose(
            (phi**2).sum(1), model.kernel_.variance[c], rtol=1e-13
        )
        np.testing.assert_allclose(r[c] - (phi**2).sum(1), 0.3, rtol=1e-12)
    assert model.inducing_points_.shape == (3, 0, 2) and model.frequencies_.shape == (
        3,
        3,
        2,
    )
    distinct = len(
        np.unique(model.frequencies_ * model.kernel_.lengthscale[:, None], axis=0)
    )
    assert distinct == (1 if shared else 3)


# --- regression -----------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [RBF, Matern32])
@pytest.mark.parametrize("weighted", [False, True])
def test_regression_is_bayesian_linear_regression_on_the_features(kernel, weighted):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(25, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=25)
    weight = rng.uniform(0.3, 3, 25) if weighted else np.ones(25)
    options = dict(
        noise=0.05,
        learn=(),
        normalize_y=False,
        random_state=4,
        inducing="spectrum",
        n_inducing=8,
    )
    model = GPRegressor("vi", **nest(kernel=kernel([0.8, 1.7], 1.3), **options)).fit(
        X, y, weight
    )
    phi, new = (features(model.frequencies_, 1.3, rows) for rows in (X, NEW))
    cov = np.linalg.inv(np.eye(8) + (phi.T * weight / 0.05) @ phi)
    mean = new @ cov @ phi.T @ (weight * y / 0.05)
    got, got_cov = model.predict(NEW, return_cov=True, noise=False)
    np.testing.assert_allclose(got, mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(got_cov, new @ cov @ new.T, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(
        model.predict(NEW, return_std=True, noise=False)[1] ** 2,
        np.diag(got_cov),
        rtol=1e-8,
    )
    if not weighted:
        S = phi @ phi.T + 0.05 * np.eye(25)
        quadratic = y @ np.linalg.solve(S, y) + np.linalg.slogdet(2 * np.pi * S)[1]
        assert model.log_marginal_likelihood_ == pytest.approx(
            -0.5 * quadratic, rel=1e-9
        )


# --- classification -------------------------------------------------------------------


@pytest.mark.parametrize("method", ["ep", "sep"])
@pytest.mark.parametrize("C", [2, 3])
def test_classification_is_a_linear_kernel_on_the_features(C, method):
    X, y = toy(18, C)
    model = classifier(C, method, learn=(), tol=0.0, max_epochs=160, damping=0.9).fit(
        X, y
    )
    omega, variance = model.frequencies_, model.kernel_.variance
    written = lambda rows: np.hstack(
        [features(w, v, rows) for w, v in zip(omega, variance, strict=True)]
    )
    latents = len(omega)
    basis = np.eye(6 * latents).reshape(
        latents, 6, -1
    )  # the unit vectors of each latent function's features
    part = lambda c: lambda A, B: A[:, 6 * c : 6 * c + 6] @ B[:, 6 * c : 6 * c + 6].T
    ks, noise = [part(c) for c in range(latents)], model.noise_
    run, labels = (
        {"ep": brute_ep.sparse_ep, "sep": brute_ep.sep}[method],
        2 * y - 1 if C == 2 else y,
    )
    exact = run(written(X), labels, basis, ks, noise, jitter=0.0)
    p = brute_ep.predict_proba(exact, written(NEW))
    assert model.log_marginal_likelihood_ == pytest.approx(exact.log_z, rel=1e-10)
    np.testing.assert_allclose(model.predict_proba(NEW), p, rtol=0, atol=1e-8)


@pytest.mark.parametrize("C", [2, slow(3)])
def test_the_gradient_in_kernel_and_noise_is_that_of_differences(C):
    X, y = toy(9, C)
    latents = 1 if C == 2 else C
    Z = draw_frequencies(None, 6, latents, 2, np.random.default_rng(1))
    run = machine(X, y, Z, kernel=RBF(1.2, 1.5), noise=0.3, learn=("kernel", "noise"))
    spectrum = Spectrum(
        run.engine.prior.kernel,
        torch.tensor(Z),
        run.engine.prior.noise.detach(),
        center=run.engine.prior.center,
        spread=run.engine.prior.spread,
        n_latent=latents,
        learn=frozenset({"kernel", "noise"}),
    )
    given = {
        "prior": spectrum,
        "parameters": name_parameters(spectrum, run.engine.factor),
    }
    run = run._replace(engine=replace(run.engine, **given))
    rest = converge(run, tol=1e-11)

    def objective(theta):
        moved = converge(run, rest._replace(theta=torch.tensor(theta)), tol=1e-8)
        return float(run.step(moved)[1].objective)

    assert_gradient(
        offered(run, rest), central_differences(objective, rest.theta.numpy(), 1e-4)
    )


@pytest.mark.parametrize("method", ["ep", "sep", "rep", "pep", "vi", "laplace"])
@pytest.mark.parametrize("C", [2, 3])
def test_every_other_method_learns_with_features(C, method):
    X, y = toy(60, C, seed=1)
    options = dict(kernel=None, noise=0.1, n_inducing=12, max_epochs=25, tol=1.0)
    model = classifier(C, method, **options).fit(X, y)
    P = model.predict_proba(X)
    np.testing.assert_allclose(P.sum(1), 1, atol=1e-9)
    assert model.score(X, y) > np.bincount(y).max() / len(y) + 0.15


def test_more_rows_by_partial_fit():
    X, y = toy(80, 3, seed=2)
    model = classifier(3, "sep", kernel=None, noise=0.1, n_inducing=12)
    for part in (slice(0, 40), slice(40, 80)):
        model.partial_fit(X[part], y[part], classes=[0, 1, 2])
    assert model.frequencies_.shape == (3, 6, 2) and model.score(X, y) > 0.5


# --- a citizen of the library ---------------------------------------------------------


@pytest.mark.parametrize("kernel", [None, Matern32()])
def test_a_saved_model_is_the_model(tmp_path, kernel):
    X, y = toy(30, 3)
    model = classifier(3, kernel=kernel, noise=0.1, max_epochs=5).fit(X, y)
    assert_same_elsewhere(model, NEW, tmp_path)
    again = cavity.load(tmp_path / "m.cavity")
    np.testing.assert_array_equal(again.frequencies_, model.frequencies_)
    assert again.inducing == "spectrum" and again.inducing_points_.shape == (3, 0, 2)
    found = describe_model(tmp_path / "m.cavity")
    assert found["rows_inside"] == "none"  # frequencies are not rows
    assert found["inducing_points"] == 6


def test_clones_are_the_same_model_and_seeds_make_it():
    X, y = toy(30, 3)
    model = classifier(3, max_epochs=3).fit(X, y)
    start = clone(model).set_params(training__learn=()).fit(X, y)
    scale = model.kernel_.lengthscale[:, None], start.kernel_.lengthscale[:, None]
    np.testing.assert_allclose(
        model.frequencies_ * scale[0], start.frequencies_ * scale[1], rtol=1e-12
    )
    twin, other = (
        m.fit(X, y) for m in (clone(model), clone(model).set_params(random_state=1))
    )
    np.testing.assert_array_equal(twin.predict_proba(NEW), model.predict_proba(NEW))
    assert np.abs(other.predict_proba(NEW) - model.predict_proba(NEW)).max() > 1e-4
    points = model.set_params(inducing="auto").fit(X, y)
    assert not hasattr(points, "frequencies_") and points.inducing_points_.shape == (
        3,
        6,
        2,
    )


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (classifier(2, "gfitc", kernel=None, noise=0.1), "which method='gfitc' needs"),
        (
            classifier(2, kernel=RationalQuadratic(), noise=0.1),
            "RBF, Matern12, Matern32, Matern52",
        ),
        (
            classifier(2, kernel=RBF() + Constant(), noise=0.1),
            "a known spectral density",
        ),
        (classifier(2, kernel=None, noise=0.1, n_inducing=1), "use at least 2"),
        (GPClassifier(inducing="spectrum"), "which method='auto' needs"),
        (GPRegressor("exact", inducing="spectrum"), "which chooses its own"),
        (GPRegressor("fitc", inducing="spectrum"), "which method='fitc'"),
        (GPRegressor("cg", inducing="spectrum"), "'svi'"),
    ],
)
def test_what_has_no_meaning_with_features_is_refused(model, words):
    X, y = toy(20, 2)
    with pytest.raises(BadOption, match=words):
        model.fit(X, y)


def test_a_picture_shows_no_points():
    names = ("figure", "collections")
    figure, collections = (pytest.importorskip(f"matplotlib.{name}") for name in names)
    X, y = toy(30, 2)
    model = classifier(2, kernel=None, noise=0.1, max_epochs=3).fit(X, y)
    axes = figure.Figure().subplots()
    ax = cavity.plots.decision_regions(model, X, y, axes, grid=20)
    kind = collections.PathCollection
    marks = [c for c in ax.collections if isinstance(c, kind)]
    assert [len(m.get_offsets()) for m in marks] == np.bincount(y).tolist()


def test_draws_of_the_posterior_have_its_moments():
    X, y = toy(30, 2)
    model = classifier(2, kernel=None, noise=0.1, max_epochs=3).fit(X, y)
    draws = model.sample_latent(NEW, 20_000)
    mean, var = model.predict_latent(NEW, noise=False)
    np.testing.assert_allclose(draws.mean(0), mean, atol=0.05)
    np.testing.assert_allclose(draws.var(0), var, rtol=0.05)
