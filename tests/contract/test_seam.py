"""The seam: another likelihood through the unedited engine, and what a step promises
whoever runs it.
"""

import math
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from cavity.common.ranks import Local
from cavity.engine.inference import State
from cavity.engine.training.optimisers import OPTIMISERS
from cavity.kernels import RBF, Matern32
from cavity.likelihoods import Latents, Likelihood, Moments
from reference import kernels as written_out
from reference.exact import gp_regression
from support import Machine, Recorder, latents, machine, toy


# --- a Gaussian likelihood ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Gaussian(Likelihood):
    """y = f + N(0, s²): one latent, one site a row.

    Everything a likelihood has to say.
    """

    noise: float

    def sites(self, y):
        return torch.zeros(len(y), 1, dtype=torch.long)

    def moments(self, f: Latents, y, exponent):
        """N(y; f, s²)^e = c N(y; f, s²/e)."""
        e = torch.ones(len(y), dtype=y.dtype) if exponent is None else exponent
        total, off = f.var + (self.noise / e)[:, None], y[:, None] - f.mean
        log_c = 0.5 * (1 - e) * math.log(2 * math.pi * self.noise) - 0.5 * e.log()
        value = log_c - 0.5 * (
            off[:, 0] ** 2 / total[:, 0] + (2 * math.pi * total[:, 0]).log()
        )
        dv = 0.5 * (off**2 / total - 1) / total
        return Moments(value, off / total, dv, dv)


NOISE = 0.3
LENGTHSCALE, VARIANCE = np.array([0.9, 1.4]), 1.7
NEW = np.random.default_rng(9).normal(size=(7, 2))


def data(N=25):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.3 * rng.normal(size=N)


def k(A, B):
    return written_out.matern32(A, B, LENGTHSCALE, VARIANCE)


def regression(X, y, weight=None, method="ep", learn=()) -> Machine:
    """Z = X, no latent noise, no jitter: the projection is the GP itself."""
    kernel = Matern32(LENGTHSCALE, VARIANCE)
    options = dict(
        kernel=kernel, noise=0.0, jitter=0.0, learn=learn, method=method, weight=weight
    )
    return machine(X, y, X, factor=Gaussian(NOISE), **options)


def swept(run: Machine) -> State:
    """Gaussian sites do not depend on the cavity: one sweep is the fixed point."""
    state, info = run.step(run.state)
    assert not info.failed
    return state


def assert_regression(run, exact, mean_only=False):
    state = swept(run)
    f = latents(run, state, NEW)
    np.testing.assert_allclose(f.mean[0], exact.mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(f.var[0], exact.var, rtol=0, atol=1e-8)
    if not mean_only:
        assert run.evidence(state) == pytest.approx(exact.log_evidence, abs=1e-8)


def test_gaussian_likelihood_gives_exact_regression():
    X, y = data()
    exact = gp_regression(k(X, X), y, NOISE, k(NEW, X), np.diag(k(NEW, NEW)))
    assert_regression(regression(X, y), exact)


def test_tied_sites_give_the_same_posterior():
    """Sites that do not depend on their cavity lose nothing by being tied."""
    X, y = data()
    exact = gp_regression(k(X, X), y, NOISE, k(NEW, X), np.diag(k(NEW, NEW)))
    assert_regression(regression(X, y, method="sep"), exact, mean_only=True)


def test_any_weight_divides_the_noise():
    """N(y; f, s²)^ω = c N(y; f, s²/ω), fractions included."""
    X, y = data(12)
    weight = np.random.default_rng(1).uniform(0.05, 3, 12)
    each = NOISE / weight
    # gp_regression takes one noise: the rest goes into K's diagonal
    K = k(X, X) + np.diag(each - each.min())
    exact = gp_regression(K, y, each.min(), k(NEW, X), np.diag(k(NEW, NEW)))
    log_c = np.sum(
        0.5 * (1 - weight) * np.log(2 * np.pi * NOISE) - 0.5 * np.log(weight)
    )
    assert_regression(
        regression(X, y, weight),
        exact._replace(log_evidence=exact.log_evidence + log_c),
    )


def test_the_gradient_is_that_of_exact_regression():
    X, y = data()
    run = regression(X, y, learn=("kernel",))
    recorder = Recorder()
    run.step(swept(run), optimiser=recorder)
    covariance = ConstantKernel(VARIANCE) * Matern(LENGTHSCALE, nu=1.5)
    theirs = GaussianProcessRegressor(covariance, alpha=NOISE, optimizer=None).fit(X, y)
    _, slope = theirs.log_marginal_likelihood(covariance.theta, eval_gradient=True)
    names = [name for name, _ in run.engine.prior.named_parameters()]
    assert names == ["kernel.log_lengthscale", "kernel.log_variance"]
    np.testing.assert_allclose(
        recorder.gradient, [slope[1], slope[2], slope[0]], rtol=1e-7
    )


# --- a step ------------------------------------------------------------------------------------------------
SIGN, ADAM = OPTIMISERS["sign"], OPTIMISERS["adam"]


def build_run(C, method, weighted, repeat=1, **options) -> Machine:
    X, y = toy(20, C)
    Z = np.random.default_rng(1).normal(size=(1 if C == 2 else C, 4, 2))
    weight = np.random.default_rng(2).uniform(0.2, 2, 20) if weighted else np.ones(20)
    table = np.tile(X, (repeat, 1)), np.tile(y, repeat)
    options = dict(
        kernel=RBF(1.0),
        method=method,
        weight=np.tile(weight, repeat),
        damping=0.5,
        **options,
    )
    return machine(*table, Z, **options)


@pytest.fixture(params=[2, 3], ids=["binary", "three classes"])
def classes(request):
    return request.param


@pytest.fixture(params=["ep", "sep"])
def method(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["plain", "weighted"])
def case(request, classes, method):
    return classes, method, request.param


@pytest.fixture
def run(case) -> Machine:
    return build_run(*case)


def a_batch(run: Machine):
    return next(iter(run.rows.batches(7, torch.Generator().manual_seed(0))))


def tensors(value):
    """All tensors of nested tuples; anything else is an error."""
    if isinstance(value, torch.Tensor):
        return [value]
    assert isinstance(value, tuple), f"{type(value)} is neither a tensor nor a tuple"
    return list(chain.from_iterable(map(tensors, value)))


@pytest.fixture
def no_values(monkeypatch):
    """A tensor's value must not reach Python: no item, no truth, no number."""

    def refuse(*_, **__):
        raise AssertionError("a step read a value")

    for name in (
        "item",
        "tolist",
        "numpy",
        "__bool__",
        "__float__",
        "__int__",
        "__index__",
        "__contains__",
    ):
        monkeypatch.setattr(torch.Tensor, name, refuse)


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Python does not read the flag of failure either."""
    monkeypatch.setattr(
        "cavity.engine.inference.engine.is_readable", lambda flag: False
    )


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("full", [False, True])
def test_a_step_reads_no_value(run, full, learn, no_values, as_on_a_gpu):
    optimiser = None
    memory = ()
    if learn:
        optimiser = SIGN if full else ADAM
        memory = optimiser.init(run.state.theta)
    state = run.state._replace(optimiser=memory)
    batch = run.rows.whole() if full else a_batch_unseen(run)
    for _ in range(2):
        state, info = run.engine.step(state, batch, Local(), optimiser, full)
    assert info.failed.dtype == torch.bool and info.failed.shape == ()


def a_batch_unseen(run: Machine):
    """The first rows as a batch, made without reading them."""
    return next(iter(run.rows.whole().split(7)))


def hollow(run: Machine, mode: FakeTensorMode) -> Machine:
    """The same engine with hyper-parameters that have a shape and no values."""
    for module in run.engine.prior.modules():
        for name, p in module.named_parameters(recurse=False):
            module._parameters[name] = nn.Parameter(
                mode.from_tensor(p.detach()), requires_grad=p.requires_grad
            )
    learnt = {
        name: p for name, p in run.engine.prior.named_parameters() if p.requires_grad
    }
    return run._replace(engine=replace(run.engine, parameters=learnt))


@pytest.mark.parametrize("full", [False, True])
def test_a_step_runs_on_tensors_without_values(run, full, as_on_a_gpu):
    """Fake tensors know shapes only: whatever depended on data would raise, inside
    torch too.
    """
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        run = hollow(run, mode)
        batch = run.rows.whole() if full else a_batch_unseen(run)
        state, info = run.engine.step(run.state, batch, Local(), SIGN, full)
        assert state.sums.P.shape == run.state.sums.P.shape
        with pytest.raises(DataDependentOutputException):
            bool(info.failed)


def test_a_state_is_a_tuple_of_tensors(run):
    state, info = run.step(run.state, optimiser=SIGN)
    before, after = tensors(run.state), tensors(state)
    assert [t.shape for t in before] == [t.shape for t in after]
    assert [t.dtype for t in before] == [t.dtype for t in after]
    assert len(tensors(tuple(x for x in info if x is not None))) >= 4


def test_a_full_step_leaves_the_state_it_was_given(run):
    state, _ = run.step(run.state, optimiser=SIGN)
    kept = [t.clone() for t in tensors(state)]
    run.step(state, optimiser=SIGN)
    assert all(torch.equal(a, b) for a, b in zip(kept, tensors(state), strict=True))


def test_a_step_is_a_function_of_its_state(run):
    """Whatever ran in between, the same state gives the same bits."""
    first, info = run.step(run.state, optimiser=SIGN)
    run.step(first, optimiser=SIGN)
    again, info_again = run.step(run.state, optimiser=SIGN)
    assert all(
        torch.equal(a, b) for a, b in zip(tensors(first), tensors(again), strict=True)
    )
    assert torch.equal(info.objective, info_again.objective)


@pytest.mark.parametrize("chunk", [None, 3])
def test_a_batch_writes_its_own_rows(case, chunk):
    run = build_run(*case, chunk=chunk)
    state, _ = run.step(run.state)
    kept, kept_clock = [t.clone() for t in tensors(state)], state.sites.clock.clone()
    batch = a_batch(run)
    after, _ = run.step(state, batch, SIGN)
    if not run.engine.sites.tied:
        others = torch.ones(20, dtype=torch.bool)
        others[batch.index] = False
        moved = (after.sites.tau != kept[1]).any(1)
        assert moved[batch.index].all() and not moved[others].any()
        assert torch.equal(after.sites.clock[others], kept_clock[others]), (
            "rows that were not visited"
        )


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("spoil", ["theta", "sums", "rows"])
def test_failure_is_a_flag(run, spoil, full):
    state, info = run.step(run.state)
    assert not info.failed
    nan = torch.tensor(torch.nan, dtype=torch.float64)
    if spoil == "theta":
        state = state._replace(theta=state.theta * nan)
    elif spoil == "sums":
        state = state._replace(
            sums=state.sums._replace(P=state.sums.P - 100 * torch.eye(4).double())
        )
    else:
        run = run._replace(rows=run.rows._replace(X=run.rows.X * nan))
    _, info = run.step(state, None if full else a_batch(run), SIGN)
    assert info.failed.item() is True and (
        spoil == "rows" or info.broken.item() is True
    )


def test_reduce_is_called_once_with_everything_to_sum(case):
    """What a step adds up over processes is one tuple; doubling it is a table twice as
    long.
    """
    seen = []

    class Twice(Local):
        def sum(self, totals):
            seen.append(totals)
            return type(totals)(*(2 * t for t in totals))

    double, single = build_run(*case, repeat=2, chunk=9), build_run(*case)
    one, info = double.engine.step(
        single.state, single.rows.whole(), Twice(), None, True
    )
    two, both = double.step(double.state)
    assert len(seen) == 1 and len(tensors(seen[0])) == len(seen[0])
    torch.testing.assert_close(tuple(one.sums), tuple(two.sums), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(info.evidence, both.evidence, rtol=1e-12, atol=1e-12)
