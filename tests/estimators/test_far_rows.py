"""Every finite row has finite predictions, however far it is from the training rows."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris, load_wine

from cavity import BadInput, GPClassifier, GPRegressor, Training
from cavity.kernels import RBF, Linear, Matern32
from support import classifier, slow, toy

FAR = (1e20, 1e155, 1e300, 1.7e308)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "method, kernel, C",
    [
        ("auto", None, 3),
        slow("ep", None, 2),
        slow("ep", RBF(), 20),
        ("ep", Linear() * Linear(), 3),
        slow("laplace", RBF() + Linear(), 3),
        slow("vi", Matern32(), 3),
        ("vi-softmax", RBF() + Linear(), 3),
    ],
)
def test_every_finite_row_has_finite_predictions(method, kernel, C, dtype):
    """A cell of 1e155 gave probabilities of NaN and the first label.

    Far away along a line the answer does not change any more.
    """
    X, y = toy(60, C)
    likelihood = {}
    if method == "vi-softmax":
        likelihood = {
            "likelihood": "softmax",
            "noise": 0,
            "learn": ("kernel", "inducing"),
        }
    options = dict(
        kernel=kernel, n_inducing=8, max_epochs=3, random_state=0, dtype=dtype, tol=1.0
    )
    clf = classifier(method.split("-")[0], **options, **likelihood).fit(X, y)
    rows = np.array([[cell, 0.0] for cell in FAR] + [[-cell, cell] for cell in FAR])
    P = clf.predict_proba(rows)
    assert np.isfinite(P).all() and np.isfinite(clf.predict_latent(rows)).all()
    np.testing.assert_allclose(P.sum(1), 1, atol=1e-9)
    np.testing.assert_allclose(
        P[1:4], P[[0] * 3], atol=1e-6 if dtype == "float64" else 1e-4
    )
    uncertainty = clf.predict_uncertainty(rows[::4])
    assert np.isfinite(uncertainty).all()


@pytest.mark.parametrize("method", ["exact", "fitc", "nystrom", "cg", "bcm"])
def test_every_finite_row_has_a_finite_mean_and_spread(method):
    X, y = toy(40, 3)
    gp = GPRegressor(
        method, kernel=RBF() + Linear(), n_inducing=8, max_epochs=2, random_state=0
    ).fit(X, X[:, 0] + y)
    mean, std = gp.predict(np.array([[cell, -cell] for cell in FAR]), return_std=True)
    assert np.isfinite(mean).all() and np.isfinite(std).all()


def test_a_kernel_of_the_users_own_that_overflows_is_refused():
    class Square(torch.nn.Module):
        def full(self, Z):
            return 1 + torch.matmul(Z, Z.mT).square()

        def cross(self, Z, X):
            return 1 + torch.matmul(Z, X.mT).square()

        def diag(self, X):
            return 1 + X.square().sum(-1).square()[None]

    X, y = toy(40, 2)
    clf = GPClassifier(
        "ep", kernel=Square(), n_inducing=5, max_epochs=2, training=Training(tol=1.0)
    ).fit(X, y)
    with pytest.raises(BadInput, match="1 rows"):
        clf.predict_proba([[1.0, 2.0], [1e155, 0.0]])


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("effort", ["fast", slow("balanced")])
@pytest.mark.parametrize("load", [slow(load_iris), load_wine])
def test_the_default_does_not_claim_to_know_rows_with_six_times_the_spread(
    load, effort
):
    """With a linear term that goes on for ever, the mean largest probability was .78 on
    wine.
    """
    X, y = load(return_X_y=True)
    clf = GPClassifier(effort=effort, random_state=0).fit(X, y)
    far = X.mean(0) + 6 * X.std(0) * np.random.default_rng(0).normal(
        size=(200, X.shape[1])
    )
    assert clf.predict_proba(far).max(1).mean() < 0.45
    assert clf.predict_proba(X).max(1).mean() > 0.85
