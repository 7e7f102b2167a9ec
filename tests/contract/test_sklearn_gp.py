"""What scikit-learn checks of its Gaussian processes, checked of ours.

The checks follow sklearn/gaussian_process/tests (test_gpc.py and test_gpr.py, 1.7). Where
the models are the same (Laplace with two classes, exact regression) scikit-learn itself
is the reference. docs/decisions/0074-scikit-learns-checks.md lists what does not apply.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn import gaussian_process as theirs
from sklearn.gaussian_process.kernels import RBF as TheirRBF
from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel

from cavity import BadInput, BadOption, GPClassifier, GPRegressor, Training
from cavity.engine.assembly import PRIOR_SD
from cavity.kernels import RBF, Constant
from support import central_differences, without_warnings

X = np.linspace(0, 10, 30)[:, None]
NEW = np.array([[2.0], [4.0], [5.5], [6.5], [7.5]])
Y = (np.sin(X[:, 0]) > 0).astype(int)
THREE = np.digitize(np.sin(X[:, 0]), [-0.35, 0.35])
TARGET = X[:, 0] * np.sin(X[:, 0]) + np.random.default_rng(0).normal(0, 0.5, 30)
KERNELS = {
    "short": RBF(lengthscale=0.1),
    "one": RBF(lengthscale=1.0),
    "sum": RBF(lengthscale=1.0) + Constant(0.1),
}
FIXED = Training(learn=())


def fit_classifier(
    kernel: Any = None, labels: Any = Y, method: str = "laplace", **options: Any
) -> GPClassifier:
    """Fit with every row an inducing point, as scikit-learn does."""
    model = GPClassifier(
        method,
        kernel=kernel or RBF(lengthscale=1.0),
        inducing=None,
        random_state=0,
        **options,
    )
    with without_warnings():
        return model.fit(X, labels)


def fit_regressor(
    kernel: Any = None,
    rows: Any = X,
    targets: Any = TARGET,
    *,
    to_the_end: bool = False,
    **options: Any,
) -> GPRegressor:
    """Fit; unless it must train to the end, the same rows judge it.

    An estimate from folds would take more fits.
    """
    options = {"normalize_y": False, "random_state": 0} | options
    model = GPRegressor(kernel=kernel or RBF(lengthscale=1.0), **options)
    with without_warnings():
        return model.fit(
            rows, targets, eval_set=None if to_the_end else (rows, targets)
        )


class Case(NamedTuple):
    """A fitted estimator, and θ where its training started."""

    model: GPClassifier | GPRegressor
    start: np.ndarray


@pytest.fixture(scope="module", params=["laplace", "ep", "exact"])
def case(request: pytest.FixtureRequest) -> Case:
    make = partial(fit_regressor, to_the_end=True)
    if request.param != "exact":
        make = partial(fit_classifier, method=request.param)
    kernel = RBF(lengthscale=0.4) + Constant(0.1)
    start = make(kernel, training=FIXED).hyperparameters_
    values = start.values[start.values > 0]  # Laplace's noise is 0
    return Case(make(kernel), np.log(values))


def name_learnt(model: GPClassifier | GPRegressor) -> list[str]:
    """Return the name of each number of θ."""
    table = model.hyperparameters_
    return [table.names[i] for i in np.flatnonzero(table.learnt)]


# --- evidence --------------------------------------------------------------------


def test_learning_raises_the_evidence(case: Case) -> None:
    learnt = case.model.hyperparameters_.theta
    assert len(case.start) == len(learnt)
    value = case.model.log_marginal_likelihood
    assert value(learnt) > value(case.start) + 0.1


def test_the_evidence_of_the_fit_is_that_at_its_theta(case: Case) -> None:
    value = case.model.log_marginal_likelihood
    learnt = case.model.hyperparameters_.theta
    assert value() == case.model.log_marginal_likelihood_
    assert value(learnt) == pytest.approx(value(), abs=1e-3)


def test_an_evaluation_changes_nothing(case: Case) -> None:
    model = case.model
    before = model.predict_latent(NEW), model.hyperparameters_.theta
    model.log_marginal_likelihood(case.start, eval_gradient=True)
    after = model.predict_latent(NEW), model.hyperparameters_.theta
    np.testing.assert_array_equal(before[0], after[0])
    np.testing.assert_array_equal(before[1], after[1])


def test_the_fit_is_a_maximum_of_evidence_and_prior(case: Case) -> None:
    """A weak normal on each logarithm is centred where training started."""
    learnt = case.model.hyperparameters_.theta
    _, gradient = case.model.log_marginal_likelihood(learnt, eval_gradient=True)
    pull = (learnt - case.start) / PRIOR_SD**2
    np.testing.assert_allclose(gradient, pull, atol=0.1)
    # the start is no maximum
    _, gradient = case.model.log_marginal_likelihood(case.start, eval_gradient=True)
    assert np.abs(gradient).max() > 0.5


@pytest.mark.parametrize("lengthscale", [1e-3, 0.1, 1.0, 30.0])
def test_the_gradient_is_that_of_finite_differences(
    case: Case, lengthscale: float
) -> None:
    theta = case.model.hyperparameters_.theta.copy()
    place = name_learnt(case.model).index("kernel__k1__lengthscale")
    theta[place] = np.log(lengthscale)
    value = case.model.log_marginal_likelihood
    _, gradient = value(theta, eval_gradient=True)
    expected = central_differences(value, theta, 1e-3)
    np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("lengthscale", [0.1, 1.0, 3.0])
def test_laplace_of_two_classes_has_scikit_learns_evidence_and_gradient(
    lengthscale: float,
) -> None:
    ours = fit_classifier(
        training=Training(learn=("kernel",), jitter=1e-10), max_epochs=1
    )
    kernel = ConstantKernel(1.5) * TheirRBF(lengthscale)
    reference = theirs.GaussianProcessClassifier(kernel, optimizer=None).fit(X, Y)
    value, gradient = reference.log_marginal_likelihood(kernel.theta, True)
    theta = np.log([lengthscale, 1.5])
    assert name_learnt(ours) == ["kernel__lengthscale", "kernel__variance"]
    found, slope = ours.log_marginal_likelihood(theta, eval_gradient=True)
    assert found == pytest.approx(value, abs=1e-5)
    # theirs stops Newton's steps early
    np.testing.assert_allclose(slope[::-1], gradient, atol=1e-3)


@pytest.mark.parametrize("normalize", [True, False])
def test_exact_regression_has_scikit_learns_evidence_and_gradient(
    normalize: bool,
) -> None:
    ours = fit_regressor(normalize_y=normalize, max_epochs=1)
    kernel = ConstantKernel(1.5) * TheirRBF(0.8) + WhiteKernel(0.2)
    reference = theirs.GaussianProcessRegressor(
        kernel, alpha=0, optimizer=None, normalize_y=normalize
    ).fit(X, TARGET)
    value, gradient = reference.log_marginal_likelihood(kernel.theta, True)
    scale = TARGET.std() if normalize else 1.0
    theta = np.log([0.8, 1.5, 0.2 * scale**2])
    found, slope = ours.log_marginal_likelihood(theta, eval_gradient=True)
    # theirs is the evidence of normalised targets
    assert found == pytest.approx(value - len(X) * np.log(scale), rel=1e-6)
    np.testing.assert_allclose(slope[[1, 0, 2]], gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [fit_classifier, fit_regressor])
def test_an_optimizer_of_ones_own_needs_only_the_evidence(make: Any) -> None:
    model = make(training=Training(learn=("kernel", "noise")), max_epochs=1)
    value = model.log_marginal_likelihood
    start = model.hyperparameters_.theta

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        found, gradient = value(theta, eval_gradient=True)
        return -found, -gradient

    found = minimize(loss, start, jac=True, options={"maxiter": 15}).x
    assert value(found) > value(start)

    # the values found are those of a fit that learns nothing
    values = dict(zip(name_learnt(model), np.exp(found), strict=True))
    kernel = RBF(values["kernel__lengthscale"], values["kernel__variance"])
    training = Training(learn=())
    if "noise" in values:
        training = Training(learn=(), noise=values["noise"])
    again = make(kernel, training=training)
    assert len(again.hyperparameters_.theta) == 0
    assert again.log_marginal_likelihood_ == pytest.approx(value(found), abs=1e-3)


def test_the_gradient_needs_theta_of_the_right_length(case: Case) -> None:
    with pytest.raises(BadOption, match="hyperparameters_"):
        case.model.log_marginal_likelihood(eval_gradient=True)
    with pytest.raises(BadOption, match="hyperparameters_"):
        case.model.log_marginal_likelihood(case.start[:1])


# --- classification --------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_two_classes_are_predicted_as_probabilities_say(name: str) -> None:
    model = fit_classifier(KERNELS[name], method="ep", max_epochs=20)
    second = model.predict_proba(X)[:, 1] >= 0.5
    np.testing.assert_array_equal(model.predict(X), second)
    mean, variance = model.latent_mean_and_variance(X)
    assert mean.shape == variance.shape == (len(X),)
    np.testing.assert_array_equal(mean > 0, second)


@pytest.mark.parametrize("method", ["ep", "laplace"])
def test_more_classes_have_probabilities_and_a_latent_function_each(
    method: str,
) -> None:
    model = fit_classifier(labels=THREE, method=method, max_epochs=20)
    P = model.predict_proba(NEW)
    np.testing.assert_allclose(P.sum(1), 1)
    np.testing.assert_array_equal(P.argmax(1), model.predict(NEW))
    mean, variance = model.latent_mean_and_variance(NEW)
    assert mean.shape == variance.shape == (len(NEW), 3)
    value, gradient = model.log_marginal_likelihood(
        model.hyperparameters_.theta, eval_gradient=True
    )
    assert np.isfinite(value) and len(gradient) == len(model.hyperparameters_.theta)


def test_a_kernel_of_scikit_learn_is_refused() -> None:
    for model in (GPClassifier(kernel=TheirRBF()), GPRegressor(kernel=TheirRBF())):
        with pytest.raises(BadOption, match="kernel"):
            model.fit(X, Y)


# --- regression ------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_without_noise_the_mean_interpolates(name: str) -> None:
    rows = X[::3]
    model = fit_regressor(
        KERNELS[name],
        rows,
        TARGET[::3],
        training=Training(noise=0.0, learn=("kernel",), jitter=1e-10),
    )
    mean, cov = model.predict(rows, return_cov=True)
    np.testing.assert_allclose(mean, TARGET[::3], atol=1e-4)
    np.testing.assert_allclose(np.diag(cov), 0, atol=1e-4)


@pytest.mark.parametrize("name", KERNELS)
def test_standard_deviations_covariances_and_draws_agree(name: str) -> None:
    model = fit_regressor(KERNELS[name], max_epochs=20)
    for noise in (True, False):
        mean, cov = model.predict(NEW, return_cov=True, noise=noise)
        same, std = model.predict(NEW, return_std=True, noise=noise)
        np.testing.assert_allclose(same, mean)
        np.testing.assert_allclose(std**2, np.diag(cov), rtol=1e-5, atol=1e-8)
        draws = model.sample_latent(NEW, 40_000, noise=noise)
        error = std / np.sqrt(len(draws))
        assert (np.abs(draws.mean(0) - mean) < 5 * error).all()
        np.testing.assert_allclose(draws.var(0), std**2, rtol=0.06)
    np.testing.assert_allclose(model.predict(NEW), mean)


def test_learn_nothing_keeps_the_kernel() -> None:
    model = fit_regressor(RBF(lengthscale=0.7), training=FIXED)
    table = model.hyperparameters_
    assert len(table.theta) == 0 and not table.learnt.any()
    assert dict(zip(table.names, table.values, strict=True)) == pytest.approx(
        {"kernel__lengthscale": 0.7, "kernel__variance": 1.0, "noise": 0.1}
    )
    learnt = fit_regressor(RBF(lengthscale=0.7)).hyperparameters_
    assert learnt.learnt.all() and (learnt.values != table.values).all()


def test_the_slower_column_gets_the_longer_lengthscale() -> None:
    rows = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    targets = np.sin(3 * rows[:, 0]) + 0.1 * rows[:, 1]
    table = fit_regressor(RBF(lengthscale=[1.0, 1.0]), rows, targets).hyperparameters_
    fast, slow = table.values[:2]
    assert table.columns[:2] == ("column 0", "column 1")
    assert slow > 3 * fast


@pytest.mark.slow
def test_targets_may_be_normalised_by_hand() -> None:
    kernel = RBF(lengthscale=1.0)
    shift = TARGET.mean()
    scale = TARGET.std()
    plain = fit_regressor(kernel, targets=(TARGET - shift) / scale)
    whole = fit_regressor(kernel, normalize_y=True)
    mean, cov = plain.predict(NEW, return_cov=True)
    found, spread = whole.predict(NEW, return_cov=True)
    np.testing.assert_allclose(found, shift + scale * mean, rtol=1e-4)
    np.testing.assert_allclose(spread, scale**2 * cov, rtol=1e-4, atol=1e-6)
    ten = fit_regressor(kernel, targets=10 * TARGET, normalize_y=True)
    np.testing.assert_allclose(ten.predict(NEW), 10 * found, rtol=1e-6)
    np.testing.assert_allclose(
        ten.hyperparameters_.theta[-1],
        whole.hyperparameters_.theta[-1] + 2 * np.log(10),
        rtol=1e-6,
    )


def test_constant_targets_are_predicted() -> None:
    model = fit_regressor(targets=np.ones(len(X)), normalize_y=True)
    np.testing.assert_allclose(model.predict(NEW), 1.0)


@pytest.mark.slow
def test_a_repeated_row_and_a_near_copy_are_the_same() -> None:
    training = Training(noise=0.01, learn=("kernel",))
    targets = np.append(TARGET, TARGET[0] + 1)
    new = np.linspace(0, 10, 40)[:, None]
    equal = fit_regressor(
        rows=np.vstack([X, X[:1]]), targets=targets, training=training, to_the_end=True
    )
    near = fit_regressor(
        rows=np.vstack([X, X[:1] + 1e-15]),
        targets=targets,
        training=training,
        to_the_end=True,
    )
    np.testing.assert_allclose(equal.predict(new), near.predict(new), atol=1e-5)


def test_deviations_agree_where_the_kernel_is_nearly_singular() -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1.5, 1.5, (6, 2))
    model = fit_regressor(
        RBF(lengthscale=[590.0, 1300.0], variance=9e5),
        rows,
        rng.normal(scale=3, size=6),
        training=Training(learn=(), noise=1e-5),
    )
    far = np.array([[-1.9, -1.9], [1.9, -1.9], [-1.9, 1.9], [1.9, 1.9]])
    _, std = model.predict(far, return_std=True)
    _, cov = model.predict(far, return_cov=True)
    np.testing.assert_allclose(std, np.sqrt(np.diag(cov)), rtol=1e-4)


def test_shapes_of_predictions_and_draws() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(9, 6))
    new = rng.normal(size=(7, 6))
    copy = new.copy()
    for normalize in (True, False):
        model = fit_regressor(
            None, rows, rng.normal(size=9), normalize_y=normalize, max_epochs=3
        )
        mean, std = model.predict(new, return_std=True)
        assert mean.shape == std.shape == (7,)
        assert model.predict(new, return_cov=True)[1].shape == (7, 7)
        assert model.sample_y(new, n_samples=5).shape == (7, 5)
        assert model.sample_latent(new, 5).shape == (5, 7)
        assert isinstance(model.predict(new), np.ndarray)
        with pytest.raises(BadOption):
            model.predict(new, return_std=True, return_cov=True)
    np.testing.assert_array_equal(new, copy)


def test_two_columns_of_targets_are_refused() -> None:
    with pytest.raises(BadInput):
        GPRegressor().fit(X, np.column_stack([TARGET, TARGET]))


def test_the_prior_of_a_kernel_has_mean_0_and_its_variance() -> None:
    kernel = RBF(lengthscale=1.0, variance=2.0) + Constant(0.5)
    K = kernel(NEW)
    np.testing.assert_allclose(np.diag(K), 2.5)
    np.testing.assert_allclose(K, K.T)
    draws = kernel.sample(NEW, 20_000, random_state=0)
    np.testing.assert_allclose(draws.mean(0), 0, atol=0.06)
    np.testing.assert_allclose(np.cov(draws.T), K, atol=0.1)
