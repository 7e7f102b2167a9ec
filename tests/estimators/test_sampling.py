"""Hyper-parameters by NUTS: the target is the evidence with its prior, the draws are
its posterior's, predictions their average.
"""

import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import support
from cavity import BadInput, BadOption, GPClassifier, GPRegressor, Training
from cavity.engine.kernels.base import log_parameter
from cavity.explain import nuts, sampling
from cavity.fitting.options import nest
from cavity.kernels import RBF, Constant, Kernel
from cavity.prediction.predict import predict_log_proba
from cavity.tables.labelled import read_table_of_fit, read_targets_of_fit
from cavity.tables.table import GivenRows
from reference import brute_ep
from support import assert_gradient, central_differences, toy

SHORT = dict(n_samples=20, warmup=20, chains=1, random_state=0)


def sampling_run(model, X, y):
    """The run whose hyper-parameters `sample_hyperparameters` draws."""
    request = GivenRows(X, y)
    if isinstance(model, GPClassifier):
        table = read_table_of_fit(
            request, model.class_weight, model._features(), model.classes_
        )
    else:
        table = read_targets_of_fit(request, model._features(), model._result.units)
    return sampling.make_sampling_run(model._config(), model._fitted, table)


def quietly(call, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return call(*arguments, **options)


def line(N=12, seed=0):
    """Rows of one column, and a noisy curve."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-3, 3, N))[:, None]
    return x, np.sin(1.5 * x[:, 0]) + 0.3 * rng.normal(size=N)


def regressor(method="exact", **options):
    given = dict(
        kernel=RBF(1.0),
        noise=0.1,
        normalize_y=False,
        random_state=0,
        max_epochs=20,
        device="cpu",
    )
    return GPRegressor(method, **nest(**{**given, **options}))


def classifier(C, method="ep", **options):
    X, y = toy(14, C)
    given = dict(n_inducing=4, max_epochs=10, random_state=0, device="cpu")
    return quietly(support.classifier(method, **{**given, **options}).fit, X, y), X, y


@pytest.fixture(scope="module")
def sampler():
    return pytest.importorskip("mici", reason="the sampler is in the extra 'mcmc'")


class Width(Kernel):
    """exp(−½ (x − x')²/ℓ²): only the lengthscale is unknown."""

    def __init__(self, lengthscale=1.0):
        super().__init__()
        self.lengthscale = lengthscale

    def bind(self, classes, columns):
        self.log_lengthscale = log_parameter(
            self.lengthscale, (classes, 1), columns.spread, "lengthscale"
        )
        self.register_buffer("unit", torch.tensor(columns.spread))

    def settle(self, classes):
        pass

    def full(self, Z):
        return self.cross(Z, Z[0])

    def cross(self, Z, X):
        gap = (Z - X.mT) / (self.unit * self.log_lengthscale.exp()[:, :, None])
        return torch.exp(-0.5 * gap.square())

    def diag(self, X):
        return torch.ones(1, len(X), dtype=X.dtype)


@pytest.fixture(scope="module")
def sampled(sampler):
    """A regressor with draws of two hyper-parameters, all of which predict."""
    x, y = line(20)
    model = quietly(regressor(kernel=Width()).fit, x, y, eval_set=(x, y))
    draws = quietly(
        model.sample_hyperparameters,
        x,
        y,
        n_samples=110,
        warmup=50,
        chains=1,
        random_state=1,
        n_models=110,
    )
    return model, x, y, draws


def few(target, n, warmup, chains, accept, seed):
    """Draws that cost nothing, in the place of a sampler's: around the fit."""
    theta = target.run.state.theta.numpy() + 0.3 * np.random.default_rng(seed).normal(
        size=(chains, n, len(target.run.state.theta))
    )
    size = (chains, n)
    return nuts.Chains(theta, np.zeros(size), np.full(size, 0.8), np.zeros(size, bool))


@pytest.fixture(scope="module")
def classes():
    model, X, y = classifier(3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nuts, "sample", few)
        return model, quietly(model.sample_hyperparameters, X, y, **SHORT)


# --- the target -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("C", "method", "options"),
    [
        (2, "ep", {}),
        (3, "ep", dict(share="kernel")),
        (2, "ep", dict(kernel=RBF() + Constant(), n_inducing=2)),
        (2, "rep", dict(epsilon=0.1)),
        (2, "laplace", {}),
        (2, "vi", dict(likelihood="softmax")),
        pytest.param(2, "pep", dict(power=0.6), marks=pytest.mark.slow),
        pytest.param(3, "gfitc", dict(share="kernel"), marks=pytest.mark.slow),
        pytest.param(3, "laplace", dict(share="kernel"), marks=pytest.mark.slow),
    ],
)
def test_the_gradient_of_a_classifiers_target_is_that_of_differences(
    C, method, options
):
    model, X, y = classifier(C, method, **options)
    target = nuts.LogDensity(sampling_run(model, X, y), tol=1e-9)
    theta = target.run.state.theta.numpy() + 0.2 * np.random.default_rng(0).normal(
        size=len(target.run.state.theta)
    )
    expected = central_differences(lambda t: target(t)[0], theta, 1e-4)
    assert_gradient(target(theta)[1], expected, rel=1e-5)


@pytest.mark.parametrize("method", ["exact", "fitc", "vi", "svi"])
def test_the_gradient_of_a_regressors_target_is_that_of_differences(method):
    x, y = line()
    model = quietly(regressor(method, n_inducing=4).fit, x, y, eval_set=(x, y))
    target = nuts.LogDensity(sampling_run(model, x, y))
    theta = target.run.state.theta.numpy() + 0.1
    assert_gradient(
        target(theta)[1], central_differences(lambda t: target(t)[0], theta, 1e-4)
    )


@pytest.mark.parametrize("method", ["ep", "laplace"])
def test_the_target_errs_by_a_thousandth_and_its_gradient_by_half_a_per_cent(method):
    """Half a logarithm away from the fit, against sites that no longer move."""
    X, y = toy(24, 3)
    given = dict(n_inducing=6, max_epochs=10, random_state=0, device="cpu")
    model = quietly(support.classifier(method, **given).fit, X, y)
    usual = nuts.LogDensity(sampling_run(model, X, y))
    tight = nuts.LogDensity(sampling_run(model, X, y), tol=1e-9)
    center = tight.run.state.theta.numpy()
    for move in 0.5 * np.random.default_rng(0).normal(size=(6, len(center))):
        value, gradient = usual(center + move)
        true_value, true_gradient = tight(center + move)
        assert abs(value - true_value) <= 1e-3
        error = np.linalg.norm(gradient - true_gradient)
        assert error <= 5e-3 * np.linalg.norm(true_gradient)


def test_differences_of_the_target_are_its_gradient_at_the_fit():
    """Also where log Z_q is not stationary in the sites, as in Laplace's method."""
    model, X, y = classifier(3, "laplace")
    target = nuts.LogDensity(sampling_run(model, X, y))
    center = target.run.state.theta.numpy().copy()
    expected = central_differences(lambda t: target(t)[0], center, 1e-2)
    gradient = target(center)[1]
    error = np.linalg.norm(gradient - expected)
    assert error <= 0.05 * np.linalg.norm(gradient)


def test_at_the_start_of_a_fit_the_target_is_its_evidence():
    """The prior is centred there, and contributes nothing."""
    X, y = toy(14, 3)
    model = GPClassifier(
        "ep",
        n_inducing=4,
        training=Training(learn=(), tol=1e-9),
        random_state=0,
        device="cpu",
    )
    quietly(model.fit, X, y)
    target = nuts.LogDensity(sampling_run(model, X, y))
    assert target(target.run.state.theta.numpy())[0] == pytest.approx(
        model.log_marginal_likelihood_, abs=1e-6
    )


def test_the_target_is_a_function_of_the_hyper_parameters_alone():
    model, X, y = classifier(3)
    target = nuts.LogDensity(sampling_run(model, X, y))
    theta = target.run.state.theta.numpy()
    before = target(theta + 0.1)
    target(theta - 0.7)
    after = target(theta + 0.1)
    assert before[0] == after[0] and np.array_equal(before[1], after[1])


# --- the draws --------------------------------------------------------------------------------------------
class Bell:
    """A normal density with correlated coordinates in the place of an evidence."""

    mean = np.array([1.0, -2.0])
    cov = np.array([[2.0, 0.9], [0.9, 0.5]])

    def __init__(self):
        self.run = SimpleNamespace(
            state=SimpleNamespace(theta=torch.zeros(2, dtype=torch.float64))
        )

    def __call__(self, theta):
        pull = np.linalg.solve(self.cov, self.mean - theta)
        return 0.5 * float(pull @ (theta - self.mean)), pull


@pytest.mark.slow
def test_draws_of_a_normal_have_its_moments(sampler):
    found = nuts.sample(Bell(), 300, 150, 2, 0.8, 0)
    theta = found.theta.reshape(-1, 2)
    np.testing.assert_allclose(theta.mean(0), Bell.mean, atol=0.3)
    np.testing.assert_allclose(np.cov(theta.T), Bell.cov, rtol=0.3)
    assert not found.diverging.any() and 0.6 < found.acceptance.mean() < 1
    np.testing.assert_allclose(
        found.log_density[1, 7], Bell()(found.theta[1, 7])[0], rtol=1e-12
    )


def test_draws_of_a_regressor_have_the_moments_of_a_grid(sampled):
    """Likelihood times prior on a grid of (log ℓ, log noise), by explicit matrices."""
    _, x, y, draws = sampled
    where = np.stack(
        np.meshgrid(np.linspace(-3, 3, 81), np.linspace(-8, 3, 81), indexing="ij")
    ).reshape(2, -1)
    l, noise = np.exp(where)[:, :, None, None]
    K = np.exp(-0.5 * (x - x.T) ** 2 / l**2) + noise * np.eye(len(x))
    quadratic = y @ np.linalg.solve(K, np.broadcast_to(y[:, None], (len(K), len(x), 1)))
    log_p = -0.5 * (np.linalg.slogdet(K)[1] + quadratic[:, 0])
    log_p -= (
        0.5 * ((where - [[0.0], [np.log(0.1)]]) ** 2).sum(0) / 4
    )  # the library's prior: sd 2 around the start
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = where @ p
    sd = np.sqrt((where - mean[:, None]) ** 2 @ p)
    for i, name in enumerate(("lengthscale", "noise")):
        got = np.log(draws.draws[name]).ravel()
        ess = float(draws.ess[name].ravel()[0])
        assert ess > 40
        assert abs(got.mean() - mean[i]) < 3 * sd[i] / np.sqrt(ess)
        assert abs(got.std() / sd[i] - 1) < 3 / np.sqrt(2 * ess)


def test_the_same_random_state_gives_the_same_predictions(monkeypatch):
    monkeypatch.setattr(nuts, "sample", few)
    x, y = line()
    model = quietly(regressor(kernel=Width()).fit, x, y, eval_set=(x, y))
    first, again, other = (
        quietly(model.sample_hyperparameters, x, y, **{**SHORT, "random_state": seed})
        for seed in (0, 0, 1)
    )
    for name in first.draws:
        np.testing.assert_array_equal(first.draws[name], again.draws[name])
        assert (first.draws[name] != other.draws[name]).any()
    np.testing.assert_array_equal(first.predict(x), again.predict(x))


def test_draws_are_in_the_users_units(monkeypatch):
    monkeypatch.setattr(nuts, "sample", few)
    x, y = line()
    plain, scaled = (
        quietly(
            quietly(
                regressor(kernel=None, normalize_y=True, learn=()).fit, a * x, b * y
            ).sample_hyperparameters,
            a * x,
            b * y,
            **SHORT,
        )
        for a, b in ((1.0, 1.0), (8.0, 4.0))
    )
    np.testing.assert_allclose(
        scaled.draws["lengthscale"], 8 * plain.draws["lengthscale"], rtol=1e-6
    )
    np.testing.assert_allclose(
        scaled.draws["noise"], 16 * plain.draws["noise"], rtol=1e-6
    )
    np.testing.assert_allclose(
        scaled.predict(8 * x), 4 * plain.predict(x), rtol=1e-6, atol=1e-8
    )


# --- predictions ------------------------------------------------------------------------------------------
def test_a_regressor_predicts_the_mixture_of_its_draws(sampled):
    _, x, y, draws = sampled
    new = np.linspace(-2.5, 2.5, 7)[:, None]
    each = []
    for l, noise in zip(
        draws.draws["lengthscale"].ravel(), draws.draws["noise"].ravel(), strict=True
    ):
        k = lambda a, b, l=l: np.exp(-0.5 * (a - b.T) ** 2 / l**2)
        solved = np.linalg.solve(
            k(x, x) + noise * np.eye(len(x)), np.column_stack([y, k(x, new)])
        )
        each.append(
            (k(new, x) @ solved[:, 0], 1 - np.sum(k(new, x).T * solved[:, 1:], axis=0))
        )
    means, variances = (np.stack(part) for part in zip(*each, strict=True))
    mean, sd = draws.predict(new, return_std=True, noise=False)
    np.testing.assert_allclose(mean, means.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(sd**2, variances.mean(0) + means.var(0), rtol=1e-5)
    np.testing.assert_array_equal(draws.predict(new), mean)


def test_averaged_probabilities_are_probabilities_within_the_range_of_the_draws(
    classes,
):
    _, draws = classes
    new = np.random.default_rng(1).normal(size=(8, 2))
    P = draws.predict_proba(new)
    np.testing.assert_allclose(P.sum(1), 1, atol=1e-9)
    each = np.stack([predict_log_proba(m, new)[0] for m in draws.models])
    assert len(each) == 20 and np.ptp(np.exp(each), axis=0).max() > 0.01
    assert (P >= np.exp(each).min(0) - 1e-12).all() and (
        P <= np.exp(each).max(0) + 1e-12
    ).all()
    np.testing.assert_allclose(P, np.exp(each).mean(0), rtol=1e-9)
    assert "lengthscale[2, 1]" in str(draws) and draws.warnings[-1] in str(draws)


# --- bad input --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(n_samples=3), "n_samples=3"),
        (dict(warmup=0), "warmup=0"),
        (dict(chains=0), "chains=0"),
        (dict(target_accept=1.5), "target_accept=1.5"),
        (dict(n_models=0), "n_models=0"),
    ],
)
def test_bad_arguments_are_named(options, words):
    model, X, y = classifier(2)
    with pytest.raises(BadOption, match=words):
        model.sample_hyperparameters(X, y, **options)


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("sep", {}, "ties its sites"),
        ("vi", {"likelihood": "robust-max"}, "several optima"),
        ("ep", dict(kernel=torch.nn.Module), "without a prior"),
    ],
)
def test_classifiers_without_such_a_target_are_refused(method, options, words):
    if options.get("kernel") is torch.nn.Module:
        options = {"kernel": Weights()}
    model, X, y = classifier(2, method, **options)
    with pytest.raises(BadOption, match=words):
        model.sample_hyperparameters(X, y)


class Weights(torch.nn.Module):
    """A kernel of the user's own."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))

    def full(self, Z):
        return self.cross(Z, Z[0])

    def cross(self, Z, X):
        return torch.exp(-((Z[:, :, None] - X) * self.weight).square().sum(-1))

    def diag(self, X):
        return torch.ones(1, len(X), dtype=X.dtype)


@pytest.mark.parametrize("method", ["sr", "cg", "bcm"])
def test_regressors_without_an_evidence_of_their_own_are_refused(method):
    x, y = line()
    model = quietly(regressor(method, n_inducing=4).fit, x, y, eval_set=(x, y))
    with pytest.raises(BadOption, match="'exact', 'fitc', 'vi', 'svi'"):
        model.sample_hyperparameters(x, y)


def test_rows_must_be_those_of_the_fit():
    model, X, y = classifier(2)
    with pytest.raises(NotFittedError):
        GPClassifier().sample_hyperparameters(X, y)
    with pytest.raises(BadInput, match="13"):
        model.sample_hyperparameters(X, y[:13])
    with pytest.raises(ValueError, match="features"):
        model.sample_hyperparameters(X[:, :1], y)
    with pytest.raises(BadInput, match="label 7"):
        model.sample_hyperparameters(X, y + 7)
    x, z = line()
    exact = quietly(regressor().fit, x, z)
    with pytest.raises(BadInput, match="fitted"):
        exact.sample_hyperparameters(x[:9], z[:9])


def test_without_the_sampler_the_extra_is_named(monkeypatch):
    model, X, y = classifier(2)
    monkeypatch.setitem(sys.modules, "mici", None)
    with pytest.raises(BadOption, match=r"\[mcmc\]"):
        model.sample_hyperparameters(X, y)


@pytest.mark.slow
def test_draws_of_a_classifier_have_the_moments_of_a_grid(sampler):
    """The evidence of EP by explicit matrices, times the prior, on a grid of log ℓ."""
    x, curve = line(24)
    y = (curve > 0).astype(int)
    Z = np.linspace(-3, 3, 6)[:, None]
    given = dict(
        kernel=Width(),
        inducing=Z,
        noise=0.0,
        learn="kernel",
        device="cpu",
        random_state=0,
    )
    model = quietly(support.classifier("ep", **given).fit, x, y)
    length = dict(
        n_samples=600, warmup=300, chains=1, random_state=1
    )  # one parameter: steps adapt slowly
    draws = quietly(model.sample_hyperparameters, x, y, **length)
    where = np.linspace(-3, 3, 41)
    kernels = [
        lambda a, b, l=l: np.exp(-0.5 * (a - b.T) ** 2 / np.exp(2 * l)) for l in where
    ]
    log_p = [
        brute_ep.sparse_ep(x, 2 * y - 1, Z[None], [k], 0.0, tol=1e-8).log_z
        for k in kernels
    ]
    log_p -= 0.5 * where**2 / 4  # the library's prior: sd 2 around the start
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = where @ p
    sd = np.sqrt((where - mean) ** 2 @ p)
    got = np.log(draws.draws["lengthscale"]).ravel()
    ess = float(draws.ess["lengthscale"].ravel()[0])
    assert ess > 30 and p[[0, -1]].max() < 1e-3 and 0.6 < draws.acceptance < 0.95
    assert abs(got.mean() - mean) < 3 * sd / np.sqrt(ess)
    assert abs(got.std() / sd - 1) < 3 / np.sqrt(2 * ess)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{"damping": 0.3}, {"jitter": 1e-16}])
def test_the_density_of_a_linear_model_depends_neither_on_damping_nor_on_how_little_jitter_was_asked_for(
    options,
):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 2, (20, 1))
    y = np.sin(3 * X[:, 0]) + 0.2 * rng.standard_normal(20)
    usual = dict(
        method="exact", kernel=RBF(1.0), noise=0.1, learn=(), normalize_y=False
    )
    found = []
    for further in ({}, options):
        gp = GPRegressor(**nest(**usual | further)).fit(X, y)
        run = sampling_run(gp, X, y)
        target = nuts.LogDensity(run)
        theta = run.state.theta.numpy()
        value, gradient = target(theta + 0.1)
        found.append([value, *gradient])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)
