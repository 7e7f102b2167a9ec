"""A fitted model predicts on the device of its fit; pickles and files do not depend on
it.
"""

import copy
import pickle

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris

import cavity
from cavity import GPClassifier, GPRegressor
from cavity.common.torch_namespace import TORCH
from cavity.engine.kernels.base import formula_of
from cavity.errors import BadOption
from cavity.fitting.options import nest
from cavity.kernels import RBF, Linear, Matern32
from cavity.prediction.latent import make_form
from cavity.prediction.model import FittedModel
from cavity.prediction.predict import predict_latent, predict_log_proba
from cavity.prediction.targets import ARRAYS, predict_joint, predict_values
from cavity.prediction.uncertainty import predict_uncertainty
from support import with_few_trees

X, y = load_iris(return_X_y=True)
QUICK = {
    "n_inducing": 8,
    "max_epochs": 3,
    "tol": 1.0,
    "random_state": 0,
    "device": "cpu",
}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def fitted(method="auto", **options):
    with with_few_trees():
        return GPClassifier(method, **nest(**QUICK | options)).fit(X, y)


def test_to_returns_the_estimator_itself_and_keeps_predictions():
    clf = fitted()
    before = clf.predict_proba(X)
    assert clf.to("cpu") is clf and clf.to(torch.device("cpu")) is clf
    np.testing.assert_array_equal(clf.predict_proba(X), before)
    with pytest.raises(BadOption, match="device"):
        clf.to("toaster")


@pytest.mark.parametrize("through", ["pickle", "save"])
def test_pickles_and_files_hold_a_copy_on_the_cpu(through, tmp_path, monkeypatch):
    """A model that says it is on a GPU is moved before it is written."""
    clf = fitted()
    asked = []
    monkeypatch.setattr(
        FittedModel, "device", property(lambda self: torch.device("cuda"))
    )
    monkeypatch.setattr(
        FittedModel, "to", lambda self, device: asked.append(str(device)) or self
    )
    pickle.dumps(clf) if through == "pickle" else clf.save(tmp_path / "iris.cavity")
    assert set(asked) == {"cpu"}


@needs_gpu
@pytest.mark.parametrize("method", ["ep", "rep", "laplace"])
def test_a_model_fitted_on_a_gpu_predicts_there(method, tmp_path):
    clf = fitted(method, device="cuda")
    assert clf._fitted.device.type == "cuda"
    expected = clf.predict_proba(X)
    uncertain = clf.predict_uncertainty(X)
    clf.save(tmp_path / "iris.cavity")
    again = cavity.load(tmp_path / "iris.cavity", device="cuda")
    for other in (
        pickle.loads(pickle.dumps(clf)),
        cavity.load(tmp_path / "iris.cavity"),
        again,
        clf.to("cpu"),
    ):
        np.testing.assert_allclose(other.predict_proba(X), expected, rtol=0, atol=1e-8)
    np.testing.assert_allclose(clf.predict_uncertainty(X), uncertain, rtol=0, atol=1e-6)
    assert again._fitted.device.type == "cuda" and clf._fitted.device.type == "cpu"


@needs_gpu
@pytest.mark.parametrize("method", ["vi", "fitc", "nystrom", "bcm", "cg"])
def test_a_regressor_fitted_on_a_gpu_predicts_there(method):
    gp = GPRegressor(method, **nest(**QUICK | {"device": "cuda"})).fit(
        X[:, :3], X[:, 3]
    )
    expected = gp.predict(X[:, :3], return_std=True)
    moved = pickle.loads(pickle.dumps(gp)).predict(X[:, :3], return_std=True)
    np.testing.assert_allclose(moved, expected, rtol=0, atol=1e-6)


# ---------------------------------------------------------------- products instead of solves
@pytest.mark.parametrize("method", ["ep", "sep", "rep", "vi"])
@pytest.mark.parametrize(
    "options", [{}, {"share": "both"}, {"inducing": None}], ids=str
)
def test_products_and_solves_give_the_same_marginals(method, options):
    model = fitted(method, **options)._fitted
    assert model.form is not None
    rows = np.concatenate([X, X + 0.3, 5 * X])
    f = predict_latent(model, rows)
    exact = predict_latent(model._replace(by_solves=True), rows)
    np.testing.assert_allclose(f.mean, exact.mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(f.var, exact.var, rtol=1e-9)


@pytest.mark.parametrize("M", [9, 64, 100])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("negative", [False, True])
def test_products_are_those_of_explicit_matrices(M, shared, negative):
    """Also in blocks of a triangular matrix; sites with negative τ, which make λ < 0,
    have no such matrix.
    """
    rng = np.random.default_rng(M)
    C = 3
    n = 7
    noise = 0.3
    A = rng.normal(size=(1 if shared else C, M, 2 * M))
    S = rng.normal(size=(C, M, 5))
    K = A @ A.swapaxes(1, 2) / M
    sign = np.array([-0.01 if negative else 1, 1, 1, 1, 1])
    precision = np.eye(M) + (S * sign) @ S.swapaxes(1, 2) / M
    mean = rng.normal(size=(C, M))
    L = np.linalg.cholesky(K)
    lower = np.linalg.cholesky(precision)
    given = L, mean, lower, np.full(C, noise)
    form = make_form(*given)
    in_torch = make_form(*map(torch.tensor, given))
    assert form.triangular != negative and not in_torch.triangular
    k = rng.normal(size=(len(K), M, n))
    variance = np.full((C, n), 1e3)
    a = np.linalg.solve(L, k)
    explained = (a * ((np.eye(M) - np.linalg.inv(precision)) @ a)).sum(1)
    for found in (
        in_torch.apply(torch.tensor(k), torch.tensor(variance)),
        form.apply(k, variance),
    ):
        np.testing.assert_allclose(
            found[0], (mean[:, None] @ a)[:, 0], rtol=1e-9, atol=1e-9
        )
        np.testing.assert_allclose(found[1], variance - explained, rtol=1e-9)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"share": "both"},
        {"share": "kernel"},
        {"kernel": Matern32() * Linear() + RBF()},
    ],
    ids=str,
)
@pytest.mark.parametrize("classes", [2, 3])
def test_the_formulas_in_torch_and_one_row_at_a_time_give_the_same_marginals(
    options, classes
):
    some = y < classes
    model = GPClassifier("ep", **nest(**QUICK | options)).fit(X[some], y[some])._fitted
    rows = np.concatenate([X[::15], 5 * X[::50], [[1e200, -1e300, 0, 0]]])
    f = predict_latent(model, rows)
    single = [predict_latent(model, row[None]) for row in rows]
    for other in (
        predict_latent(in_torch(model), rows),
        [np.concatenate(part) for part in zip(*single, strict=True)],
    ):
        np.testing.assert_allclose(other[0], f.mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(other[1], f.var, rtol=1e-9)


def in_torch(model):
    """The same model with tensors on the CPU, as a GPU has them."""
    names = ("Z", "noise", "center", "spread", "prior_lower", "mean", "lower")
    kernel = copy.deepcopy(model.prior.kernel).requires_grad_(False)
    formula = formula_of(kernel, TORCH)
    return model._replace(
        formula=formula, **{name: torch.tensor(getattr(model, name)) for name in names}
    )


@pytest.mark.parametrize(
    "options", [{"method": "rep"}, {"method": "laplace"}, {}], ids=str
)
def test_tensors_predict_what_arrays_do(options):
    model = fitted(**{"method": "ep"} | options)._fitted
    for predict in (predict_log_proba, predict_uncertainty):
        for found, expected in zip(
            predict(in_torch(model), X), predict(model, X), strict=True
        ):
            np.testing.assert_allclose(np.exp(found), np.exp(expected), rtol=1e-9)


@pytest.mark.parametrize("method", ["fitc", "pp", "nystrom", "cg", "bcm"])
def test_tensors_predict_targets_as_arrays_do(method):
    given = X[:, :3]
    target = X[:, 3]
    gp = GPRegressor(method, **nest(**QUICK))
    gp.fit(given, target, eval_set=(given, target))
    result = gp._result
    model = gp._fitted
    rows = result.rows and result.rows._replace(
        **{n: torch.tensor(getattr(result.rows, n)) for n in ARRAYS}
    )
    for ask in (predict_values, predict_joint):
        expected = ask(model, result.rows, result.predicts_residual, X[:20, :3])
        found = ask(in_torch(model), rows, result.predicts_residual, X[:20, :3])
        for x, value in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, value, rtol=1e-7, atol=1e-9)


def test_products_replace_solves_where_they_are_accurate_and_noise_is_small():
    """As on images: a variance of 100, smooth functions, and noise of a thousandth."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(100, 10))
    rows = rng.normal(size=(200, 10))
    K, k = (100 * np.exp(-((Z[:, None] - x) ** 2).sum(-1) / 40) for x in (Z, rows))
    L = np.linalg.cholesky(K + 1e-6 * np.eye(100))
    s = 1e-3
    a = np.linalg.solve(L, k)
    lower = np.linalg.cholesky(np.eye(100) + 5 * a @ a.T)
    mean = rng.normal(size=(1, 100))
    form = make_form(L[None], mean, lower[None], np.array([s]))
    found_mean, found_var = form.apply(k[None], np.full((1, 200), 100 + s))
    var = 100 + s - (a * a).sum(0) + (np.linalg.solve(lower, a) ** 2).sum(0)
    np.testing.assert_allclose(found_var[0], var, rtol=1e-9)
    np.testing.assert_allclose(
        found_mean[0], mean[0] @ a, rtol=0, atol=1e-9 * var.min() ** 0.5
    )


def test_badly_conditioned_factors_are_solved():
    lower = np.array([[[1.0, 0.0], [1.0, 1e-9]]])
    q = np.eye(2)[None]
    mean = np.zeros((1, 2))
    noise = np.array([0.1])
    assert make_form(lower, mean, 2 * q, noise) is None
    assert make_form(lower, mean + 1, q, noise) is None
    assert (
        make_form(lower, mean, q, noise) is not None
    )  # q is the prior: no product counts
    assert make_form(q, mean, 2 * q, noise) is not None
    assert (
        make_form(q, mean, 1e6 * q, 0 * noise) is None
    )  # nothing is left of a variance
