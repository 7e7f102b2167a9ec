"""Mini-batch steps in NumPy are those of the engine."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from cavity import GPClassifier
from cavity.callbacks import Callback
from cavity.columns import Columns
from cavity.distributed import Local
from cavity.inference import copy_state
from cavity.inference.array_step import MOST_WORK, ArrayStep, make_array_step
from cavity.kernels import RBF, Linear, Matern32
from cavity.training.guard import Guard
from cavity.training.optimisers import Ascent
from support import Machine, machine, toy

ASCENT = Ascent(40)  # Adam would magnify the rounding of gradients that are 0
TOL = {"float64": 1e-9, "float32": 2e-3}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def make_machine(C=3, kernel=None, N=40, **options) -> Machine:
    X, y = toy(N, C)
    Z = np.random.default_rng(1).normal(size=(1 if C == 2 else C, 5, 2))
    kernel = RBF(1.0) + Linear() if kernel is None else kernel
    run = machine(X, y, Z, kernel=kernel, damping=0.7, **options)
    rate = torch.tensor(0.05, dtype=torch.float64)
    return run._replace(state=run.state._replace(rate=rate, optimiser=()))


def batches(run, size=13):
    return list(run.rows.batches(size, torch.Generator().manual_seed(0)))


def close(one, other, tol):
    np.testing.assert_allclose(one.double(), other.double(), rtol=tol, atol=tol)


def assert_same_steps(run: Machine, tol: float, chosen=None) -> None:
    """Compare each step from the same state, so that nothing grows from step to step."""
    state, step = run.state, ArrayStep(run.engine)
    assert make_array_step(run.engine, state, 13) is not None
    for batch in chosen or 2 * batches(run):
        by_engine, info = run.engine.step(copy_state(state), batch, Local(), ASCENT, False)
        state, found = step(state, batch, ASCENT)
        for name in ("theta", "clock"):
            close(getattr(state, name), getattr(by_engine, name), tol)
        for name in ("sites", "sums", "optimiser"):
            for one, other in zip(getattr(state, name), getattr(by_engine, name), strict=True):
                assert one.dtype == other.dtype
                close(one, other, tol * max(1, float(other.abs().max())))
        for name in ("objective", "evidence", "promise"):
            close(getattr(found, name), getattr(info, name), tol * abs(float(info.objective)))
        assert int(found.skipped) == int(info.skipped) and not found.failed and not info.failed
        assert torch.equal(found.undo[0], info.undo[0])
        for one, other in zip(found.undo[1], info.undo[1], strict=True):
            close(one, other, tol)


@pytest.mark.parametrize("dtype", TOL)
@pytest.mark.parametrize("share", [None, "kernel", "inducing", "both", "prior"])
@pytest.mark.parametrize("C", [2, 3, 5])
def test_a_step_is_that_of_the_engine(C, share, dtype):
    assert_same_steps(make_machine(C, share=share, dtype=dtype), TOL[dtype])


@pytest.mark.parametrize("kernel", [RBF(0.8), Linear(), Linear(2.0) + RBF(1.0)], ids=str)
@pytest.mark.parametrize("learn", [("kernel",), ("inducing", "noise"), ("noise",)], ids=str)
def test_any_part_may_be_fixed(kernel, learn):
    assert_same_steps(make_machine(kernel=kernel, learn=learn), 1e-9)


def test_columns_may_share_a_lengthscale():
    run = make_machine(learn=("kernel", "inducing", "noise"))
    kernel = RBF(1.0) + Linear()
    columns = Columns(np.zeros(2), np.ones(2), 1.5, group=np.array([0, 0]))
    kernel.bind(3, columns)
    run.engine.prior.kernel = kernel.double()
    learnt = tuple(p for p in run.engine.prior.parameters() if p.requires_grad)
    engine = replace(run.engine, parameters=learnt)
    theta = engine.theta()
    mean, precision = theta.clone(), torch.ones_like(theta)
    engine = replace(engine, hyper_prior=run.engine.hyper_prior._replace(mean=mean, precision=precision))
    state = run.state._replace(theta=theta, optimiser=())
    assert_same_steps(run._replace(engine=engine, state=state), 1e-9)


def test_cavities_that_vanish_are_skipped():
    run = make_machine()
    state, _ = run.engine.step(run.state, run.rows.whole(), Local(), None, True)
    state.sites.tau[:3] = 1e6
    batch = run.rows.whole()
    _, info = run.engine.step(copy_state(state), batch, Local(), ASCENT, False)
    assert int(info.skipped) > 0
    assert_same_steps(run._replace(state=state), 1e-9, [batch])


def test_a_step_that_fails_is_left_to_the_engine():
    run = make_machine()
    batch, step = batches(run)[0], ArrayStep(run.engine)
    spoilt = run.state.sums._replace(P=run.state.sums.P - 100 * torch.eye(5).double())
    assert step(run.state._replace(sums=spoilt), batch, ASCENT) is None
    assert step(run.state._replace(theta=run.state.theta * torch.nan), batch, ASCENT) is None
    assert step(run.state, batch._replace(X=1e40 * batch.X), ASCENT) is None
    _, info = Guard(run.engine, Local(), step).advance(run.state._replace(sums=spoilt), batch, ASCENT, False)
    assert info is None


def test_values_that_overflow_are_a_flag():
    run = make_machine()
    first, second = batches(run)[:2]
    state, _ = run.engine.step(run.state, first, Local(), ASCENT, False)  # at q = prior the gradient is 0
    _, info = ArrayStep(run.engine)(state._replace(rate=state.rate * torch.inf), second, ASCENT)
    assert info.failed.item() is True


def test_other_engines_do_not_suit():
    weight = np.random.default_rng(0).uniform(0.5, 2, 40)
    others = [
        make_machine(kernel=Matern32()),
        make_machine(weight=weight),
        *(make_machine(method=method) for method in ("sep", "vi", "rep")),
    ]
    for run in others:
        assert make_array_step(run.engine, run.state, 13) is None
    run = make_machine()
    assert make_array_step(run.engine, run.state, MOST_WORK // (3 * 25) + 1) is None
    assert make_array_step(replace(run.engine, chunk=12), run.state, 13) is None


class Watch(Callback):
    """Records what takes the steps, and the threads of BLAS."""

    def __init__(self):
        self.seen, self.threads = [], set()

    def epoch(self, run, row):
        self.seen.append(run.guard.arrays is not None)
        self.threads |= {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
        return False


@pytest.mark.parametrize(("method", "expected"), [("auto", True), ("ep", False)])
def test_default_fits_take_such_steps_with_one_thread(method, expected):
    """Methods with a name keep the engine's last bits."""
    watch = Watch()
    X, y = toy(60, 3)
    GPClassifier(method, n_inducing=5, batch_size=20, max_epochs=2, device="cpu", callbacks=[watch]).fit(X, y)
    assert set(watch.seen) == {expected} and watch.threads == {1}
