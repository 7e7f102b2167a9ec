"""GPRegressor: each method is what explicit matrices say, and meets its parents where
theory says so.
"""

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from cavity import GPRegressor
from cavity.callbacks import Callback
from cavity.engine.inference import State
from cavity.fitting import adapter
from cavity.fitting.options import nest
from cavity.fitting.options.configuration import read_regressor
from cavity.fitting.options.plan import TableSize
from cavity.fitting.options.policy.training import plan_training
from cavity.kernels import RBF, Matern32
from cavity.tables.labelled import read_targets
from cavity.tables.table import GivenRows
from reference import kernels as written_out
from reference import sparse_regression as explicit
from support import (
    Machine,
    assert_gradient,
    central_differences,
    offered,
    regressor,
    slow,
)

NOISE, LENGTHSCALE, VARIANCE = 0.3, np.array([0.9, 1.4]), 1.7
RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
Y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.3 * RNG.normal(size=30)
NEW, Z = RNG.normal(size=(7, 2)), RNG.normal(size=(6, 2))
SPARSE = ["fitc", "vi", "svi", "pp", "sr"]


def k(A, B):
    return written_out.matern32(A, B, LENGTHSCALE, VARIANCE)


def theirs(optimizer=None):
    return ConstantKernel(VARIANCE) * Matern(LENGTHSCALE, nu=1.5)


def model(method, **options):
    fixed = dict(
        kernel=Matern32(LENGTHSCALE, VARIANCE),
        noise=NOISE,
        learn=(),
        jitter=0.0,
        device="cpu",
    )
    return regressor(
        method,
        **fixed | {"normalize_y": False, "tol": 1e-10, "random_state": 0} | options,
    )


def assert_is(gp, answer, atol=1e-8, evidence=True):
    mean, cov = gp.predict(NEW, return_cov=True, noise=False)
    np.testing.assert_allclose(mean, answer.mean, atol=atol)
    np.testing.assert_allclose(cov, answer.cov, atol=atol)
    np.testing.assert_allclose(
        gp.predict(NEW, return_std=True, noise=False)[1],
        np.sqrt(np.diag(answer.cov)),
        atol=atol,
    )
    np.testing.assert_array_equal(
        gp.predict(NEW), gp.predict(NEW, return_std=True, noise=False)[0]
    )
    if evidence:
        assert gp.log_marginal_likelihood_ == pytest.approx(
            answer.log_evidence, abs=atol
        )


# --- what each method is -----------------------------------------------------------------------------------
def test_exact_is_scikit_learns():
    gp = model("exact").fit(X, Y)
    other = GaussianProcessRegressor(theirs(), alpha=NOISE, optimizer=None).fit(X, Y)
    mean, cov = other.predict(NEW, return_cov=True)
    assert_is(gp, explicit.Answer(mean, cov, other.log_marginal_likelihood_value_))


def test_exact_in_units_of_y_is_scikit_learns():
    y = 1000 + 50 * Y
    gp = model("exact", normalize_y=True).fit(X, y)
    other = GaussianProcessRegressor(
        theirs(), alpha=NOISE, optimizer=None, normalize_y=True
    ).fit(X, y)
    for ours, other_ in zip(
        gp.predict(NEW, return_cov=True, noise=False),
        other.predict(NEW, return_cov=True),
        strict=True,
    ):
        np.testing.assert_allclose(ours, other_, rtol=1e-8, atol=1e-8)
    # theirs is the evidence of scaled targets
    evidence = other.log_marginal_likelihood_value_ - len(y) * np.log(y.std())
    assert gp.log_marginal_likelihood_ == pytest.approx(evidence, abs=1e-8)
    assert gp.noise_ == pytest.approx(NOISE * y.var())


def test_without_noise_the_mean_passes_through_the_targets():
    gp = model("exact", noise=0.0, jitter=1e-9).fit(X, Y)
    mean, sd = gp.predict(X, return_std=True, noise=False)
    np.testing.assert_allclose(mean, Y, atol=1e-7)
    assert sd.max() < 1e-4 and gp.noise_ == 0
    other = GaussianProcessRegressor(theirs(), alpha=1e-12, optimizer=None).fit(X, Y)
    np.testing.assert_allclose(gp.predict(NEW), other.predict(NEW), atol=1e-7)
    # sums of y²/jitter cancel in it: what is left has ten digits fewer
    assert gp.log_marginal_likelihood_ == pytest.approx(
        other.log_marginal_likelihood_value_, abs=1e-4
    )


@pytest.mark.parametrize("method", SPARSE)
def test_each_sparse_method_is_that_of_explicit_matrices(method):
    answer = explicit.sparse(
        explicit.kernels(k, Z, X, NEW), Y, NOISE, "vi" if method == "svi" else method
    )
    assert_is(model(method, inducing=Z).fit(X, Y), answer)


@pytest.mark.parametrize("method", SPARSE)
def test_with_a_point_at_every_row_each_is_exact(method):
    answer = explicit.exact(explicit.kernels(k, X, X, NEW), Y, NOISE)
    gp = model(method, inducing=None).fit(X, Y)
    if method != "sr":
        assert_is(gp, answer)
    else:  # the subset of regressors has no variance beyond its regressors
        np.testing.assert_allclose(gp.predict(NEW), answer.mean, atol=1e-8)
        assert gp.log_marginal_likelihood_ == pytest.approx(
            answer.log_evidence, abs=1e-8
        )
        K = explicit.kernels(k, X, X, X)
        np.testing.assert_allclose(
            gp.predict(X, return_cov=True, noise=False)[1],
            explicit.exact(K, Y, NOISE).cov,
            atol=1e-8,
        )


def test_the_bound_is_below_the_evidence_and_rises_with_points():
    evidence = model("exact").fit(X, Y).log_marginal_likelihood_
    bounds = [model("vi", inducing=X[:m]).fit(X, Y).elbo_ for m in (3, 10, 20, 30)]
    assert (np.diff(bounds) > 0).all() and bounds[-1] == pytest.approx(
        evidence, abs=1e-8
    )


def test_weights_are_rows():
    times = np.random.default_rng(1).integers(0, 4, 30)
    again = np.repeat(X, times, axis=0), np.repeat(Y, times)
    for method in ("exact", *SPARSE):
        points = {} if method == "exact" else {"inducing": Z}
        one = model(method, **points).fit(X, Y, sample_weight=times)
        other = model(method, **points).fit(*again)
        np.testing.assert_allclose(one.predict(NEW), other.predict(NEW), atol=1e-8)
        assert one.log_marginal_likelihood_ == pytest.approx(
            other.log_marginal_likelihood_, abs=1e-8
        )


# --- stochastic variational inference ----------------------------------------------------------------------
def machine(method, learn=(), **options) -> Machine:
    """The engine that GPRegressor runs, without a fit."""
    return machine_of(model(method, inducing=Z, learn=learn, **options), Z)


def machine_of(estimator, points) -> Machine:
    """The engine that a GPRegressor runs with these inducing points."""
    config = read_regressor(estimator.get_params(deep=False))
    table, _ = read_targets(
        GivenRows(X, Y), "GPRegressor", config.method.needs_all_rows, config.normalize_y
    )
    begin = table.start(np.random.default_rng(0))
    plan = plan_training(config, TableSize.of(table, table.X.shape[1]), len(points))
    module = adapter.make_prior(config, plan, table, begin, points[None])
    engine = adapter.make_engine(module, table, config, plan)
    rows = adapter.load_rows(table, config.dtype, config.device)
    return Machine(
        engine, rows, adapter.make_first_state(engine, rows, config, plan, 1.0, 0)
    )


SAG = {"optimizer": "sag", "batch_size": 10}


def test_one_natural_step_on_all_rows_is_the_collapsed_optimum():
    run = machine("svi")
    rng = np.random.default_rng(3)
    A = torch.tensor(rng.normal(size=(1, 6, 6)))
    start: State = run.state._replace(
        sums=type(run.state.sums)(A @ A.mT, torch.tensor(rng.normal(size=(1, 6))))
    )
    after, _ = run.step(start)
    collapsed = explicit.sparse(explicit.kernels(k, Z, X, NEW), Y, NOISE, "vi")
    assert run.evidence(after) == pytest.approx(collapsed.log_evidence, abs=1e-8)
    assert run.evidence(start) < run.evidence(after) - 1


@pytest.mark.parametrize("method", ["fitc", "vi", "pp"])
def test_the_gradient_is_that_of_the_evidence(method):
    """Kernel, points and noise; the sites found again at every point."""
    run = machine(method, learn=("kernel", "noise", "inducing"))
    swept = run.step(run.state)[0]

    def evidence(theta):
        moved = run.step(swept._replace(theta=torch.tensor(theta)))[0]
        return run.evidence(moved)

    theta = swept.theta.numpy()
    assert_gradient(
        offered(run, swept), central_differences(evidence, theta, 1e-5), rel=1e-6
    )


def test_the_exact_gradient_is_scikit_learns():
    run_options = dict(learn=("kernel", "noise"), inducing=None)
    run = machine_of(model("exact", **run_options), X)
    kernel = theirs() + WhiteKernel(NOISE)
    other = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(X, Y)
    _, slope = other.log_marginal_likelihood(kernel.theta, eval_gradient=True)
    np.testing.assert_allclose(
        offered(run, run.step(run.state)[0]), slope[[1, 2, 0, 3]], rtol=1e-6
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimizer": "gradient", "learning_rate": 0.3, "max_epochs": 150},
        SAG | {"learning_rate": 0.15, "max_epochs": 100},
        slow({"optimizer": "adam", "learning_rate": 0.05, "max_epochs": 150}),
    ],
    ids=["lbfgs", "full gradient", "sag", "adam"],
)
def test_every_way_of_stepping_q_comes_near_the_collapsed_bound(options):
    best = explicit.sparse(explicit.kernels(k, Z, X, NEW), Y, NOISE, "vi")
    gp = model("svi", inducing=Z, q_update="gradient", tol=0, **options).fit(X, Y)
    assert best.log_evidence - 0.05 < gp.elbo_ <= best.log_evidence + 1e-9
    np.testing.assert_allclose(gp.predict(NEW), best.mean, atol=0.1)


def test_batches_keep_their_order_for_the_average_gradient_alone():
    orders = {}

    class Watch(Callback):
        def step(self, run):
            orders[run.plan.optimizer].append(run.state.generator)

    for name in ("sag", "adam"):
        orders[name] = []
        options = SAG | {"optimizer": name, "max_epochs": 3, "callbacks": [Watch()]}
        model("svi", inducing=Z, q_update="gradient", **options).fit(X, Y)
    same = {
        name: all(torch.equal(found[0], other) for other in found)
        for name, found in orders.items()
    }
    assert same == {"sag": True, "adam": False}


def test_an_interrupted_run_of_average_gradients_goes_on_to_the_same_bits(tmp_path):
    class Interrupt(Callback):
        def step(self, run):
            if len(run.history) == 2 and int(run.state.position) == 2:
                raise KeyboardInterrupt

    options = SAG | {"max_epochs": 4, "tol": 0, "q_update": "gradient", "inducing": Z}
    whole = model("svi", **options).fit(X, Y)
    options["checkpoint"] = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        model("svi", **options, callbacks=[Interrupt()]).fit(X, Y)
    rest = model("svi", **options, resume=True).fit(X, Y)
    assert [row["objective"] for row in rest.history_] == [
        row["objective"] for row in whole.history_
    ]
    np.testing.assert_array_equal(rest.predict(NEW), whole.predict(NEW))


def test_mini_batches_climb_towards_the_full_bound():
    options = {"inducing": Z, "learn": ("kernel", "noise"), "jitter": 1e-8}
    full = model("vi", **options, tol=1e-6).fit(X, Y)
    start = model("vi", inducing=Z).fit(X, Y)
    batches = model("svi", **options, batch_size=10, max_epochs=20).fit(X, Y)
    assert (
        start.elbo_ + 0.2 * (full.elbo_ - start.elbo_)
        < batches.elbo_
        < full.elbo_ + 1e-6
    )


# --- hyper-parameters --------------------------------------------------------------------------------------
def test_the_maximum_of_the_evidence_is_scikit_learns():
    """Begun there, where our weak prior on the logarithms has its centre, a fit stays
    there.
    """
    best = GaussianProcessRegressor(theirs() + WhiteKernel(NOISE), alpha=0.0).fit(X, Y)
    covariance, white = best.kernel_.k1, best.kernel_.k2
    start = Matern32(covariance.k2.length_scale, covariance.k1.constant_value)
    gp = model(
        "exact",
        kernel=start,
        noise=white.noise_level,
        learn=("kernel", "noise"),
        max_epochs=5,
    ).fit(X, Y)
    assert gp.log_marginal_likelihood_ == pytest.approx(
        best.log_marginal_likelihood_value_, abs=1e-5
    )


def test_learning_raises_the_evidence_and_samples_have_the_posteriors_moments():
    start, gp = (
        model("exact", jitter=1e-8).fit(X, Y),
        model("exact", learn=("kernel", "noise"), jitter=1e-8).fit(X, Y),
    )
    assert gp.log_marginal_likelihood_ > start.log_marginal_likelihood_ + 0.5
    mean, cov = gp.predict(NEW, return_cov=True, noise=False)
    draws = gp.sample_y(NEW, 40_000, random_state=1)
    assert draws.shape == (7, 40_000)
    np.testing.assert_allclose(draws.mean(1), mean, atol=0.03)
    np.testing.assert_allclose(np.cov(draws), cov, atol=0.03)


# --- noise that is small beside the usual jitter -------------------------------------------------------------
def interpolation(
    noise: float, N: int = 12
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows, targets, new rows, and the exact mean and deviation of f there in long
    arithmetic.
    """
    import mpmath as mp

    X, T = np.linspace(-2, 2, N)[:, None], np.linspace(-1.9, 1.9, 9)[:, None]
    y = np.sin(3 * X[:, 0])
    with mp.workdps(40):

        def k(a, b):
            return mp.exp(-((mp.mpf(a) - mp.mpf(b)) ** 2) / 2)

        K = mp.matrix([[k(a, b) for b in X[:, 0]] for a in X[:, 0]]) + mp.mpf(
            noise
        ) * mp.eye(N)
        cross = [mp.matrix([k(a, t) for a in X[:, 0]]) for t in T[:, 0]]
        alpha = mp.lu_solve(K, mp.matrix(y.tolist()))
        mean = np.array([float((c.T * alpha)[0]) for c in cross])
        var = np.array([float(1 - (c.T * mp.lu_solve(K, c))[0]) for c in cross])
    return X, y, T, mean, np.sqrt(var)


@pytest.mark.parametrize("noise", [1e-4, 1e-6, 1e-8])
def test_exact_regression_is_exact_at_small_noise(noise):
    X, y, T, mean, sd = interpolation(noise)
    fit = {"kernel": RBF(1.0), "noise": noise, "learn": (), "normalize_y": False}
    got, std = (
        GPRegressor("exact", **nest(**fit))
        .fit(X, y)
        .predict(T, return_std=True, noise=False)
    )
    assert (np.abs(got - mean) < 1e-3 * np.hypot(sd, noise**0.5)).all()
    np.testing.assert_allclose(std, sd, rtol=2e-3)


@pytest.mark.parametrize("noise", [slow(1e-4), 1e-10])
def test_the_covariance_of_conjugate_gradients_is_positive_semi_definite(noise):
    X = np.linspace(-2, 2, 30)[:, None]
    y = np.sin(3 * X[:, 0])
    fit = dict(
        kernel=RBF(1.0),
        noise=noise,
        learn=(),
        normalize_y=False,
        n_inducing=20,
        random_state=0,
    )
    _, cov = (
        GPRegressor("cg", **nest(**fit))
        .fit(X, y)
        .predict(np.linspace(-2.5, 2.5, 40)[:, None], return_cov=True, noise=False)
    )
    assert np.linalg.eigvalsh(cov).min() > -1e-13
