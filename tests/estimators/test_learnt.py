"""What an estimator says of what it has learnt: hyper-parameters, q, latent functions,
and its kernel on the user's rows.
"""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_iris

import cavity
from cavity import BadOption, GPClassifier, GPRegressor, Training
from cavity.kernels import RBF, Linear
from cavity.methods import REP, VI
from support import central_differences, without_warnings

X, Y = load_iris(return_X_y=True)
NAMES = ["a", "b", "c", "d"]
FEW = {"n_inducing": 8, "max_epochs": 5, "random_state": 0}
NEW = X[[0, 20, 60, 99, 140]]


def fitted(method: Any = "ep", classes: int = 3, **options: Any) -> GPClassifier:
    keep = Y < classes
    with without_warnings():
        return GPClassifier(method, **FEW | options).fit(X[keep], Y[keep])


@pytest.fixture(scope="module")
def binary() -> GPClassifier:
    return fitted(classes=2)


@pytest.fixture(scope="module")
def three() -> GPClassifier:
    return fitted(kernel=RBF() + Linear(fades=True))


@pytest.fixture(scope="module")
def coupled() -> GPClassifier:
    return fitted("laplace")


@pytest.fixture(scope="module")
def regressor() -> GPRegressor:
    with without_warnings():
        return GPRegressor("fitc", **FEW).fit(X[:, :3], X[:, 3])


MODELS = ["binary", "three", "coupled"]


@pytest.fixture(params=MODELS)
def classifier(request: pytest.FixtureRequest) -> GPClassifier:
    found: GPClassifier = request.getfixturevalue(request.param)
    return found


# --- latent functions ------------------------------------------------------------


@pytest.mark.parametrize("noise", [True, False])
def test_draws_have_the_moments_that_are_predicted(classifier, noise):
    mean, cov = classifier.predict_latent(NEW, return_cov=True, noise=noise)
    n = 20_000
    draws = classifier.sample_latent(NEW, n, noise=noise, random_state=1)
    assert draws.shape == (n, *mean.shape)
    mean, var = classifier.predict_latent(NEW, noise=noise)
    error = np.sqrt(np.maximum(var, 1e-12) / n)
    assert (np.abs(draws.mean(0) - mean) < 5 * error).all()

    # covariances of rows, in units of the standard deviations
    draws = draws.reshape(n, len(NEW), -1)
    cov = cov.reshape(len(NEW), len(NEW), -1)
    for c in range(draws.shape[2]):
        deviation = np.sqrt(np.diag(cov[:, :, c]))
        off = np.cov(draws[:, :, c].T) - cov[:, :, c]
        assert np.abs(off / np.outer(deviation, deviation)).max() < 0.05


def test_variances_are_the_diagonal_of_covariances_and_noise_adds_to_them(classifier):
    mean, cov = classifier.predict_latent(NEW, return_cov=True)
    same, var = classifier.predict_latent(NEW)
    _, smaller = classifier.predict_latent(NEW, noise=False)
    np.testing.assert_allclose(mean, same, atol=1e-9)
    diagonal = np.moveaxis(np.diagonal(cov, axis1=0, axis2=1), -1, 0)
    np.testing.assert_allclose(diagonal.reshape(var.shape), var, atol=1e-9)
    noise = classifier.noise_[0] if var.ndim == 1 else classifier.noise_
    np.testing.assert_allclose(smaller + noise, var, atol=1e-9)


def test_two_classes_have_one_latent_function_without_an_axis_for_it(binary):
    mean, var = binary.predict_latent(NEW)
    assert mean.shape == var.shape == (len(NEW),)
    assert binary.predict_latent(NEW, return_cov=True)[1].shape == (len(NEW),) * 2
    assert binary.sample_latent(NEW, 3).shape == (3, len(NEW))
    theirs = binary.latent_mean_and_variance(NEW)
    np.testing.assert_array_equal(theirs[0], mean)
    second = binary.predict(NEW) == binary.classes_[1]
    np.testing.assert_array_equal(mean > 0, second)


def test_a_regressor_has_the_same_methods_in_the_units_of_y(regressor):
    rows = NEW[:, :3]
    for noise in (True, False):
        mean, var = regressor.predict_latent(rows, noise=noise)
        same, std = regressor.predict(rows, return_std=True, noise=noise)
        np.testing.assert_allclose(mean, same)
        np.testing.assert_allclose(var, std**2)
        draws = regressor.sample_latent(rows, 20_000, noise=noise)
        np.testing.assert_allclose(draws.mean(0), mean, atol=5 * std.max() / 141)
        np.testing.assert_allclose(draws.var(0), var, rtol=0.06)


# --- q ---------------------------------------------------------------------------


def test_q_at_the_inducing_points_is_what_is_predicted_there(classifier):
    """But for the jitter, f at an inducing point is u."""
    mean, cov = classifier.posterior_
    Z = classifier.inducing_points_
    C, M, _ = Z.shape
    assert mean.shape == (C, M) and cov.shape == (C, M, M)
    off = ~np.eye(M, dtype=bool)  # linear functions that fade have noise of their own
    for c in range(C):
        f, K = classifier.predict_latent(Z[c], return_cov=True, noise=False)
        np.testing.assert_allclose(f.reshape(M, -1)[:, c], mean[c], atol=1e-4)
        np.testing.assert_allclose(K.reshape(M, M, -1)[off, c], cov[c][off], atol=1e-4)


def test_q_of_a_regressor_is_in_the_units_of_y(regressor):
    mean, cov = regressor.posterior_
    Z = regressor.inducing_points_
    assert mean.shape == (len(Z),) and cov.shape == (len(Z), len(Z))
    f, K = regressor.predict_latent(Z, return_cov=True, noise=False)
    np.testing.assert_allclose(f, mean, atol=1e-4)
    np.testing.assert_allclose(K, cov, atol=1e-4)


# --- hyper-parameters ------------------------------------------------------------


def test_the_table_has_every_value_by_class_and_column(three):
    frame = three.hyperparameters_.to_frame()
    of = frame.set_index(["name", "class", "column"])["value"]
    for c, label in enumerate(three.classes_):
        for d in range(4):
            for part in ("k1", "k2"):
                kernel = getattr(three.kernel_, part)
                place = f"kernel__{part}__lengthscale", label, f"column {d}"
                assert of[place] == pytest.approx(kernel.lengthscale[c, d])
        assert of["kernel__k2__variance", label, ""] == pytest.approx(
            three.kernel_.k2.variance[c]
        )
        assert of["noise", label, ""] == pytest.approx(three.noise_[c])
    assert set(frame["status"]) == {"learnt"}
    np.testing.assert_allclose(np.exp(three.hyperparameters_.theta), frame["value"])
    assert "kernel__k1__variance" in str(three.hyperparameters_)


def test_fixed_values_are_listed_and_are_not_part_of_theta():
    clf = fitted(REP(epsilon=0.1), training=Training(learn=("kernel",), noise=0.3))
    table = clf.hyperparameters_
    fixed = [table.names[i] for i in np.flatnonzero(~table.learnt)]
    assert fixed == ["noise", "noise", "noise", "epsilon"]
    assert table.values[~table.learnt].tolist() == pytest.approx([0.3] * 3 + [0.1])
    assert len(table.theta) == table.learnt.sum() == 15


def test_a_learnt_share_of_random_labels_is_a_log_odds():
    learn = ("kernel", "noise", "inducing", "epsilon")
    clf = fitted("rep", training=Training(learn=learn))
    table = clf.hyperparameters_
    assert table.names[-1] == "epsilon" and table.learnt[-1]
    assert table.values[-1] == pytest.approx(clf.epsilon_)
    odds = table.values[-1] / (1 - table.values[-1])
    assert table.theta[-1] == pytest.approx(np.log(odds))
    _, gradient = clf.log_marginal_likelihood(table.theta, eval_gradient=True)
    assert gradient.shape == table.theta.shape


def test_levels_of_a_category_share_a_lengthscale_which_has_its_column_s_name():
    level = np.where(X[:, 1] > 3, "u", np.where(X[:, 2] > 2, "v", "w"))
    frame = pd.DataFrame({"a": X[:, 0], "kind": level})
    clf = GPClassifier("ep", **FEW).fit(frame, Y)
    table = clf.hyperparameters_
    assert table.columns[3:9] == ("a", "kind") * 3
    assert clf.kernel_(frame[:5], frame[:2]).shape == (3, 5, 2)


# --- the kernel ------------------------------------------------------------------


def test_the_kernel_takes_the_user_s_rows(binary, three):
    scale = binary.kernel_.lengthscale[0]
    d2 = ((NEW[:, None] - X[None, :3]) / scale) ** 2
    expected = binary.kernel_.variance[0] * np.exp(-0.5 * d2.sum(-1))
    np.testing.assert_allclose(binary.kernel_(NEW, X[:3]), expected)
    K = three.kernel_(NEW)
    assert K.shape == (3, len(NEW), len(NEW))
    np.testing.assert_allclose(K, K.swapaxes(1, 2))
    draws = three.kernel_.sample(NEW, 20_000, random_state=0)
    np.testing.assert_allclose(np.cov(draws[1].T), K[1], atol=0.05 * K[1].max())


# --- evidence and its rows -------------------------------------------------------


def test_rows_that_are_not_held_are_asked_for(binary, tmp_path):
    theta = binary.hyperparameters_.theta
    value = binary.log_marginal_likelihood(theta)
    binary.save(tmp_path / "model.cavity")
    others = [
        cavity.load(tmp_path / "model.cavity"),
        pickle.loads(pickle.dumps(binary)),
    ]
    for other in others:
        np.testing.assert_array_equal(other.hyperparameters_.theta, theta)
        assert other.log_marginal_likelihood() == binary.log_marginal_likelihood_
        with pytest.raises(BadOption, match="X="):
            other.log_marginal_likelihood(theta)
        found = other.log_marginal_likelihood(theta, X=X[:100], y=Y[:100])
        assert found == pytest.approx(value, abs=1e-6)


def test_weights_are_copies_in_the_evidence(binary):
    twice = np.vstack([X[:100], X[:20]]), np.append(Y[:100], Y[:20])
    weight = np.ones(100)
    weight[:20] = 2
    theta = binary.hyperparameters_.theta
    whole = binary.log_marginal_likelihood(theta, X=twice[0], y=twice[1])
    weighted = binary.log_marginal_likelihood(
        theta, X=X[:100], y=Y[:100], sample_weight=weight
    )
    assert weighted == pytest.approx(whole, abs=1e-6)


@pytest.mark.usefixtures("few_trees")
def test_evidence_of_a_pool_is_that_of_its_gaussian_process():
    clf = GPClassifier(effort="fast", random_state=0).fit(X, Y)
    assert len(clf.ensemble_weights_) > 1
    theta = clf.hyperparameters_.theta
    found = clf.log_marginal_likelihood(theta)
    assert found == pytest.approx(clf.log_marginal_likelihood_, abs=0.05)


def test_every_regression_method_has_an_evidence_with_its_gradient():
    rng = np.random.default_rng(0)
    with without_warnings():
        for method in ("vi", "nystrom", "bcm", "svi"):
            gp = GPRegressor(method, **FEW).fit(X[:, :3], X[:, 3])
            theta = gp.hyperparameters_.theta + 0.1
            way = rng.normal(size=len(theta))
            _, gradient = gp.log_marginal_likelihood(theta, eval_gradient=True)
            up = gp.log_marginal_likelihood(theta + 1e-4 * way)
            down = gp.log_marginal_likelihood(theta - 1e-4 * way)
            assert way @ gradient == pytest.approx((up - down) / 2e-4, rel=1e-4)


def test_what_is_learnt_exists_after_a_fit_only():
    clf = GPClassifier()
    for name in ("hyperparameters_", "posterior_", "kernel_"):
        assert not hasattr(clf, name)


def test_the_evidence_is_minus_infinity_where_nothing_can_be_factorised(binary):
    theta = binary.hyperparameters_.theta
    value, gradient = binary.log_marginal_likelihood(theta + 1000, eval_gradient=True)
    assert value == -np.inf
    np.testing.assert_array_equal(gradient, np.zeros_like(theta))


def test_free_parameters_of_q_have_no_evidence_elsewhere():
    clf = fitted(VI(q_update="gradient"))
    with pytest.raises(BadOption, match="q_update"):
        clf.log_marginal_likelihood(clf.hyperparameters_.theta)


def test_parameters_of_a_module_are_listed_as_they_are():
    class Scaled(torch.nn.Module):
        """v Σ_d w_d x_d x'_d"""

        def __init__(self) -> None:
            super().__init__()
            self.log_v = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
            self.w = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))

        def cross(self, Z: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
            return self.log_v.exp() * (Z * self.w) @ X.mT

        def full(self, Z: torch.Tensor) -> torch.Tensor:
            return self.cross(Z, Z[0]) if len(Z) == 1 else self.cross(Z, Z)

        def diag(self, X: torch.Tensor) -> torch.Tensor:
            return self.log_v.exp() * (X.square() * self.w).sum(-1)[None]

    clf = fitted(classes=2, kernel=Scaled())
    table = clf.hyperparameters_
    names = ["noise", "kernel__log_v", *(f"kernel__w[{d}]" for d in range(4))]
    assert list(table.names) == names
    theta = table.theta
    np.testing.assert_allclose(theta[1:], table.values[1:])
    _, gradient = clf.log_marginal_likelihood(theta, eval_gradient=True)
    value = clf.log_marginal_likelihood
    expected = central_differences(value, theta, 1e-4)
    np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-4)
