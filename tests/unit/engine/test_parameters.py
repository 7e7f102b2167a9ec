"""Hyper-parameters that stay, keep within bounds or have a prior."""

from __future__ import annotations

import copy
from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.base import clone

from cavity.engine import EP, GP, begin, evidence, fit, make_hyper_prior
from cavity.engine.runs import train
from cavity.engine.training.steps import Steps
from cavity.errors import BadOption
from cavity.kernels import (
    RBF,
    Bounded,
    Constant,
    Fixed,
    Gamma,
    Kernel,
    Linear,
    LogNormal,
    Matern32,
    Normal,
    Periodic,
    RationalQuadratic,
)
from cavity.likelihoods import BinaryProbit, Gaussian, RobustBinary
from support import slow

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 2))
TARGET = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * RNG.normal(size=24)
LABEL = (TARGET > 0).astype(int)
# start of 0.8, which is near none of the optima
SETTINGS = {
    "number": 0.8,
    "fixed": Fixed(0.8),
    "log-normal": LogNormal(-0.5, 0.4, start=0.8),
    "normal": Normal(0.5, 0.3, start=0.8),
    "gamma": Gamma(3.0, 4.0, start=0.8),
    "bounds": Bounded(0.7, 0.9, start=0.8),
    "bounds and prior": Bounded(0.7, 0.9, start=0.8, prior=Gamma(3.0, 4.0)),
}
KERNELS = {
    "RBF": lambda a, b: RBF(lengthscale=a, variance=b),
    "sum": lambda a, b: Matern32(lengthscale=a, columns=[0]) + Linear(variance=b),
    "product": lambda a, b: RationalQuadratic(alpha=a) * RBF(lengthscale=b),
    "Periodic": lambda a, b: Periodic(period=a, lengthscale=b),
}
# every pair of settings with itself and its neighbours, for each kernel
PAIRS = [
    (first, second)
    for (i, first), (j, second) in product(enumerate(SETTINGS), repeat=2)
    if (j - i) % len(SETTINGS) in (1, 3)
]
OPTIMIZERS = ("adam", "lbfgs", "newton", "gradient")


def combinations():
    """Sixty combinations of kernel, optimizer and settings."""
    every = [(kernel, *pair) for kernel, pair in product(KERNELS, PAIRS)]
    for i, (kernel, first, second) in enumerate(every + every[:4]):
        yield kernel, first, second, OPTIMIZERS[i % len(OPTIMIZERS)]


def make(kernel: str, first: str, second: str) -> GP:
    return GP(
        kernel=KERNELS[kernel](SETTINGS[first], SETTINGS[second]),
        likelihood=Gaussian(noise=0.1, learn=True),
        inducing=X[:6],
        noise=0.0,
        learn={"kernel"},
    )


def learn(gp: GP, optimizer: str, y: np.ndarray = TARGET) -> Kernel:
    plan = Steps(optimizer=optimizer, rate=0.05, max_epochs=4)
    run = train(begin(gp, X, y, plan=plan, hyper_prior=make_hyper_prior(gp)))
    run.engine.load(run.state.theta, copy=True)
    return gp.read(type(gp.make_modules())(run.engine.prior, run.engine.factor)).kernel


def list_settings(kernel: Kernel):
    """The settings of a kernel and its parts, by name."""
    return {
        name: value
        for name, value in kernel.get_params().items()
        if isinstance(value, Fixed | Bounded | LogNormal | Normal | Gamma)
        and not name.endswith("prior")
    }


def test_there_are_sixty_combinations():
    assert len(list(combinations())) == 60


@pytest.mark.parametrize(
    ("kernel", "first", "second", "optimizer"),
    [slow(*case) if i % 3 else case for i, case in enumerate(combinations())],
)
def test_fixed_values_stay_bounds_hold_and_priors_are_differentiated(
    kernel, first, second, optimizer
):
    gp = make(kernel, first, second)
    before = list_settings(gp.kernel)
    after = list_settings(learn(gp, optimizer))
    assert after.keys() == before.keys()
    for setting in after.values():
        value = np.asarray(setting)
        low, high = setting.limits
        assert (value >= low).all() and (value <= high).all()
        moved = np.abs(value - 0.8).max()
        if isinstance(setting, Fixed):
            assert moved == 0
        else:
            assert moved > 1e-6

    found = evidence(gp, X, TARGET)
    theta = gp.theta.numpy()
    direction = np.random.default_rng(1).normal(size=len(theta))
    ahead = evidence(gp.with_theta(theta + 1e-5 * direction), X, TARGET).value
    behind = evidence(gp.with_theta(theta - 1e-5 * direction), X, TARGET).value
    slope = float(found.gradient.numpy() @ direction)
    assert (ahead - behind) / 2e-5 == pytest.approx(slope, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(
    ("setting", "density"),
    [
        (LogNormal(0.3, 0.7), stats.lognorm(0.7, scale=np.exp(0.3))),
        (Normal(0.4, 0.9), stats.truncnorm(-0.4 / 0.9, np.inf, 0.4, 0.9)),
        (Gamma(2.5, 1.5), stats.gamma(2.5, scale=1 / 1.5)),
    ],
)
def test_a_prior_adds_its_density_to_the_evidence(setting, density):
    """As a density of log x: p(log x) = p(x) x."""
    gp = GP(
        kernel=RBF(Fixed(1.0), setting),
        likelihood=BinaryProbit(),
        inducing=X[:5],
        noise=Fixed(0.1),
        learn={"kernel", "noise"},
    )
    assert len(gp.theta) == 1
    plain = GP(**vars(gp) | {"kernel": RBF(Fixed(1.0), np.asarray(setting))})
    x = float(np.asarray(setting))
    gap = evidence(gp, X, LABEL).value - evidence(plain, X, LABEL).value
    assert gap == pytest.approx(density.logpdf(x) + np.log(x), abs=1e-9)


def test_the_share_of_random_labels_takes_a_prior_bounds_or_a_fixed_value():
    priors = {
        "prior": LogNormal(-3.0, 0.5, start=0.02),
        "bounds": Bounded(0.01, 0.03, start=0.02),
        "fixed": Fixed(0.02),
    }
    for name, setting in priors.items():
        gp = GP(
            kernel=RBF(Fixed(1.0), Fixed(1.0)),
            likelihood=RobustBinary(setting, learn=True),
            inducing=X[:5],
            learn=frozenset(),
        )
        learnt = fit(gp, X, LABEL, steps=30, rate=0.1, method=EP(damping=0.2)).gp
        epsilon = learnt.likelihood.epsilon
        if name == "fixed":
            assert len(gp.theta) == 0 and epsilon == 0.02
            continue

        assert epsilon != 0.02
        if name == "bounds":
            assert 0.01 - 1e-9 <= epsilon <= 0.03 + 1e-9
        found = make_hyper_prior(gp)
        theta = gp.theta.clone().requires_grad_()
        found.log_density(
            theta, torch.zeros_like(theta)
        ).backward() if found.given else None
        if found.given:
            assert torch.allclose(theta.grad, found.gradient(gp.theta))


def test_the_noise_takes_a_setting():
    gp = GP(
        kernel=RBF(1.0),
        likelihood=BinaryProbit(),
        inducing=X[:5],
        noise=Bounded(0.05, 0.2, start=0.1),
    )
    learnt = fit(gp, X, LABEL, steps=20, rate=0.3).gp
    assert isinstance(learnt.noise, Bounded)
    value = np.asarray(learnt.noise).item()
    assert 0.05 <= value <= 0.2
    assert value != 0.1


def test_settings_are_arguments_like_others():
    kernel = RBF(LogNormal(0.0, 1.0), Fixed(2.0)) + Constant(Bounded(0.1, 3))
    assert repr(clone(kernel)) == repr(kernel) == repr(copy.deepcopy(kernel))
    assert repr(kernel) == (
        "RBF(lengthscale=LogNormal(0.0, 1.0), variance=Fixed(2.0)) + "
        "Constant(variance=Bounded(0.1, 3))"
    )
    kernel.set_params(k1__lengthscale__scale=0.5)
    assert kernel.get_params()["k1__lengthscale__scale"] == 0.5


@pytest.mark.parametrize(
    "setting",
    [
        Fixed(-1.0),
        Bounded(2.0, 1.0),
        Bounded(1.0, 2.0, start=3.0),
        Bounded(1.0, 2.0, prior=3.0),
        LogNormal(0.0, -1.0),
        Gamma(0.0, 1.0),
    ],
)
def test_settings_that_make_no_sense_are_refused(setting):
    gp = GP(kernel=RBF(setting), likelihood=BinaryProbit(), inducing=X[:5])
    with pytest.raises(BadOption, match="lengthscale of RBF"):
        gp.theta


def test_paths_say_what_is_learnt():
    kernel = RBF(1.0) * Constant() + Linear(1.0)
    every = GP(kernel=kernel, likelihood=BinaryProbit(), inducing=X[:5])
    for path, names in {
        "kernel.0": ["kernel.k1.k1.log_lengthscale", "kernel.k1.k1.log_variance"],
        "kernel.1.variance": ["kernel.k1.k2.log_variance"],
        "kernel.2.lengthscale": ["kernel.k2.log_lengthscale"],
    }.items():
        gp = GP(**vars(every) | {"learn": {path}})
        assert list(gp.names) == names

    alone = GP(**vars(every) | {"kernel": RBF(1.0), "learn": {"kernel.variance"}})
    assert list(alone.names) == ["kernel.log_variance"]
    for wrong in ("kernel.3", "kernel.0.length", "kernel.k1"):
        with pytest.raises(BadOption, match=r"kernel\.2\.lengthscale"):
            GP(**vars(every) | {"learn": {wrong}}).theta


def test_bounds_of_a_column_hold_for_that_column():
    kernel = RBF(Bounded([0.1, 2.0], [0.2, 3.0]))
    gp = GP(kernel=kernel, likelihood=BinaryProbit(), inducing=X[:5])
    learnt = fit(gp, X, LABEL, steps=10, rate=0.5).gp.kernel
    value = np.asarray(learnt.lengthscale)[0]
    assert 0.1 <= value[0] <= 0.2 and 2 <= value[1] <= 3


def test_periodic_is_the_formula_of_mackay():
    k = Periodic(lengthscale=[[0.7, 1.1]], period=[[0.9, 2.0]], variance=1.3)
    gp = GP(kernel=k, likelihood=BinaryProbit(), inducing=X[:5])
    prior = gp.make_modules().prior
    found = prior.kernel.cross(torch.tensor(X[None, :5]), torch.tensor(X))[0]
    gap = X[:5, None] - X[None]
    wave = np.sin(np.pi * gap / [0.9, 2.0]) ** 2 / np.array([0.7, 1.1]) ** 2
    expected = 1.3 * np.exp(-2 * wave.sum(-1))
    np.testing.assert_allclose(found.detach(), expected, atol=1e-12)
    shifted = torch.tensor(X + np.array([1.8, -4.0]))
    moved = prior.kernel.cross(torch.tensor(X[None, :5]), shifted)[0]
    np.testing.assert_allclose(moved.detach(), expected, atol=1e-12)


def test_a_kernel_of_some_columns_is_the_kernel_of_a_narrower_table():
    wide = RBF(0.7, columns=[1]) + Linear(2.0, columns=[0])
    parts = (RBF(0.7), 1), (Linear(2.0), 0)

    def k(kernel, rows):
        gp = GP(kernel=kernel, likelihood=BinaryProbit(), inducing=rows[:5])
        own = gp.make_modules().prior.kernel
        return own.full(torch.tensor(rows[None, :5])), own.diag(torch.tensor(rows))

    K, d = k(wide, X)
    expected = [k(part, X[:, [column]]) for part, column in parts]
    torch.testing.assert_close(K, expected[0][0] + expected[1][0])
    torch.testing.assert_close(d, expected[0][1] + expected[1][1])
    for wrong in ([2], ["age"], [0, 0], []):
        with pytest.raises(BadOption, match="columns= of RBF"):
            k(RBF(columns=wrong), X)
