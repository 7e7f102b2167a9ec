"""What researchers look at: joint draws of the latent functions, and the learnt
hyper-parameters.
"""

import numpy as np
import pytest
from sklearn.datasets import load_iris

from cavity import GPClassifier
from cavity.kernels import RBF, Linear
from support import ALONE

X, Y = load_iris(return_X_y=True)
NAMES = ["a", "b", "c", "d"]


def fitted(method="ep", classes=3, **options) -> GPClassifier:
    keep = Y < classes
    short = {"n_inducing": 8, "max_epochs": 5, "random_state": 0, **ALONE}
    return GPClassifier(method, **short | options).fit(X[keep], Y[keep])


@pytest.mark.parametrize(
    ("method", "classes"), [("ep", 2), ("auto", 3), ("laplace", 3)]
)
def test_draws_of_latent_functions_have_the_posterior_moments_and_are_joint(
    method, classes
) -> None:
    clf = fitted(method, classes)
    rows = X[[0, 0, 60, 99]]
    draws = clf.sample_latent(rows, 4000)
    mean, var = clf.predict_latent(rows)
    assert draws.shape == (4000, *mean.shape)
    spread = np.sqrt(np.maximum(var - clf.noise_, 1e-12))
    np.testing.assert_allclose(
        draws.mean(0), mean, atol=5 * spread.max() / np.sqrt(4000)
    )
    np.testing.assert_allclose(draws.std(0), spread, rtol=0.1, atol=1e-3)
    np.testing.assert_allclose(
        draws[:, 0], draws[:, 1], atol=1e-4 * (1 + np.abs(draws[:, 0]).max())
    )  # the same row
    np.testing.assert_array_equal(
        draws[:3], clf.sample_latent(rows, 4000, random_state=0)[:3]
    )


def test_a_summary_has_the_values_of_the_kernel_by_class_and_column() -> None:
    import pandas as pd

    clf = GPClassifier(
        "ep", kernel=RBF() + Linear(), n_inducing=8, max_epochs=3, random_state=0
    )
    frame = clf.fit(pd.DataFrame(X, columns=NAMES), Y).summary().to_frame()
    of = frame.set_index(["part", "name", "column", "function"])["value"].sort_index()
    rbf = clf.kernel_.k1
    linear = clf.kernel_.k2
    for j, name in enumerate(NAMES):
        np.testing.assert_array_equal(
            of["RBF", "lengthscale", name], rbf.lengthscale[:, j]
        )
    np.testing.assert_array_equal(of["Linear", "variance", ""], linear.variance)
    np.testing.assert_array_equal(of["noise", "variance", ""], clf.noise_)
    said = str(clf.summary())
    for value in (clf.log_marginal_likelihood_, rbf.variance[0], clf.noise_[2]):
        assert f"{value:.4g}" in said
    assert f"{rbf.variance[0]:.4g}" in repr(clf.kernel_)
