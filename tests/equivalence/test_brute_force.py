"""GPClassifier with every hyper-parameter given, against explicit matrices and inverses
(C = 2…6).
"""

import numpy as np
import pytest

from cavity import GPClassifier
from cavity.fitting.options import nest
from cavity.kernels import RBF
from reference import brute_ep
from reference import kernels as written_out
from reference.problems import hyper_parameters
from support import latent_columns, slow, toy

CLASSES = [2, 3, 4, 5, 6]
NEW = np.random.default_rng(99).normal(size=(6, 2))


def setting(C, N=18, M=4):
    """Rows, inducing points and hyper-parameters that differ from class to class."""
    return *toy(N, C), *hyper_parameters(C, M)


def fit(
    X,
    y,
    Z,
    lengthscale,
    variance,
    noise,
    method="ep",
    kernel=RBF,
    weight=None,
    **options,
):
    """To rest: a fixed number of sweeps, more than any of these problems needs."""
    model = GPClassifier(
        method,
        **nest(
            kernel=kernel(lengthscale, variance),
            inducing=Z,
            noise=noise,
            learn=(),
            **{
                "tol": 0.0,
                "max_epochs": 160,
                "damping": 0.9,
                "device": "cpu",
                **options,
            },
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
        model.predict_proba(NEW),
        brute_ep.predict_proba(result, NEW),
        rtol=0,
        atol=proba,
    )
    for got, exact in zip(
        latent_columns(model, NEW), brute_ep.latent(result, NEW), strict=True
    ):
        np.testing.assert_allclose(got, exact, rtol=latent, atol=latent)


@pytest.mark.parametrize("method", ["ep", "sep"])
@pytest.mark.parametrize("C", CLASSES)
def test_evidence_probabilities_and_latents(C, method):
    problem = setting(C)
    assert_same(
        fit(*problem, method=method), oracle(*problem, method=method), 1e-11, 1e-9, 1e-9
    )


@pytest.mark.parametrize("method", ["ep", "sep"])
@pytest.mark.parametrize("C", [2, 3, 6])
def test_a_small_tol_is_enough(C, method):
    """Stopped by tol instead of at rest: evidence to 1e-6 relative, probabilities to
    1e-5.
    """
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
    assert_same(
        fit(*problem, weight=weight), oracle(*problem, weight=weight), 1e-9, 1e-7, 1e-7
    )


# --- without sparsity ------------------------------------------------------------------------------------
