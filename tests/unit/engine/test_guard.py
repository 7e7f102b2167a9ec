"""A step that fails leaves the state as it was; the guard halves damping and rates, and
the fit goes on.
"""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from cavity import GPClassifier, GPRegressor, Training
from cavity.common.ranks import Local
from cavity.engine.inference import Engine, copy_state
from cavity.engine.training.guard import Guard
from cavity.engine.training.optimisers import OPTIMISERS
from cavity.errors import NotPositiveDefinite
from cavity.fitting.options import nest
from cavity.kernels import RBF
from support import machine, toy

SIGN = OPTIMISERS["sign"]


@dataclass
class Flaky:
    """An engine whose steps fail at given calls, as those of a state that is broken
    itself or of a good one.
    """

    engine: Engine
    fails: set[int]
    broken: bool = False
    seen: list[tuple[float, float, float]] = field(
        default_factory=list
    )  # damping, rate, jitter of every call

    def step(self, state, batch, reduce, optimiser, full, *, factored):
        fails = len(self.seen) in self.fails or -1 in self.fails
        self.seen.append((float(state.damping), float(state.rate), float(state.jitter)))
        going = torch.tensor(not fails)
        state, info = self.engine.step(
            state, batch, reduce, optimiser, full, factored=factored, going=going
        )
        return state, info._replace(broken=torch.tensor(fails and self.broken))


def setting(fails, broken=False, **options):
    X, y = toy(20, 3)
    run = machine(X, y, X[:5], kernel=RBF(1.0), damping=0.8, **options)
    flaky = Flaky(run.engine, set(fails), broken)
    return run, flaky, Guard(flaky, Local())


def same(a, b):
    return all(
        torch.equal(x, y)
        for x, y in zip(
            (a.theta, *a.sums, *a.sites), (b.theta, *b.sums, *b.sites), strict=True
        )
    )


def test_after_a_failed_step_damping_and_rate_are_half():
    run, flaky, guard = setting([2])
    whole = run.rows.whole()
    first, _ = guard.advance(run.state, whole, SIGN, True)
    second, _ = guard.advance(first, whole, SIGN, True)
    back, info = guard.advance(second, whole, SIGN, True)
    assert info is None and guard.repairs == 1
    assert same(back, second)
    again, info = guard.advance(back, whole, SIGN, True)
    assert info is not None
    rate = float(run.state.rate)
    assert flaky.seen[2][:2] == (0.8, rate)
    assert flaky.seen[3][:2] == pytest.approx((0.4, rate / 2))
    # the plan's own damping and rate are not overwritten by the caution
    assert float(again.damping) == 0.8 and float(again.rate) == rate


def test_caution_wears_off():
    run, flaky, guard = setting([1])
    whole = run.rows.whole()
    state = run.state
    state, _ = guard.advance(state, whole, SIGN, True)
    state, _ = guard.advance(state, whole, SIGN, True)
    for _ in range(60):
        state, info = guard.advance(state, whole, None, True)
        assert info is not None
    used = [damping for damping, _, _ in flaky.seen[2:]]
    assert (
        used[0] == pytest.approx(0.4)
        and used == sorted(used)
        and used[-1] == pytest.approx(0.8)
    )


def test_failures_in_a_row_keep_halving():
    run, flaky, guard = setting([1, 2, 3])
    whole = run.rows.whole()
    state = run.state
    for _ in range(5):
        state, info = guard.advance(state, whole, None, True)
    assert info is not None and guard.repairs == 3
    assert [damping for damping, _, _ in flaky.seen] == pytest.approx(
        [0.8, 0.8, 0.4, 0.2, 0.1]
    )


def test_a_broken_state_raises_the_jitter():
    """Smaller steps would not help: the matrix itself is the trouble."""
    run, flaky, guard = setting([0, 1], broken=True, jitter=1e-8)
    whole = run.rows.whole()
    state = run.state
    for _ in range(3):
        state, info = guard.advance(state, whole, None, True)
    assert info is not None
    assert [jitter for _, _, jitter in flaky.seen] == pytest.approx([1e-8, 1e-7, 1e-6])


@pytest.mark.parametrize("readable", [True, False])
@pytest.mark.parametrize("size", [None, 6])
@pytest.mark.parametrize("method", ["ep", "sep", "vi", "rep"])
def test_a_step_that_makes_no_posterior_returns_the_old_state(
    monkeypatch, method, size, readable
):
    """Sites of negative precision; on a GPU the choice is made without reading the
    flag.
    """
    monkeypatch.setattr(
        "cavity.engine.inference.engine.is_readable", lambda flag: readable
    )
    X, y = toy(20, 3)
    run = machine(X, y, X[:5], kernel=RBF(1.0), method=method)
    state, info = run.step(run.state, optimiser=SIGN)
    kept = copy_state(state)
    bad = state._replace(damping=torch.full_like(state.damping, -50.0))
    batch = (
        None
        if size is None
        else next(iter(run.rows.batches(size, torch.Generator().manual_seed(0))))
    )
    after, info = run.step(bad, batch, SIGN)
    assert (
        bool(info.failed)
        and not bool(info.broken)
        and np.isfinite(float(info.objective))
    )
    assert same(after, kept) and same(state, kept), (
        "also the rows that a batch writes in place"
    )
    assert all(
        torch.equal(a, b) for a, b in zip(after.optimiser, kept.optimiser, strict=True)
    )
    assert torch.equal(
        info.factored.factor.lower, run.engine.sites.factorise(kept.sums).lower
    )


def test_giving_up_says_what_to_try():
    run, _, guard = setting([-1])
    state = run.state
    with pytest.raises(NotPositiveDefinite, match="jitter"):
        for _ in range(200):
            state, info = guard.advance(state, run.rows.whole(), None, True)
            assert info is None
    assert 10 <= guard.repairs < 200


# --- in a fit --------------------------------------------------------------------------------------------
def failing_at(monkeypatch, calls):
    """Let the engine's steps fail at these calls, counted over the whole fit."""
    real = Engine.step
    count = iter(range(10**9))

    def step(self, state, batch, reduce, optimiser, full, *, factored=None):
        going = torch.tensor(next(count) not in calls)
        return real(
            self, state, batch, reduce, optimiser, full, factored=factored, going=going
        )

    monkeypatch.setattr(Engine, "step", step)


@pytest.mark.filterwarnings("ignore:training stopped")
@pytest.mark.parametrize("method", ["ep", "sep"])
@pytest.mark.parametrize("batch_size", [None, 20])
def test_the_fit_goes_on(monkeypatch, method, batch_size):
    X, y = toy(60, 3)
    failing_at(monkeypatch, {3, 10, 11})
    model = GPClassifier(
        method,
        n_inducing=6,
        batch_size=batch_size,
        max_epochs=12,
        random_state=0,
        device="cpu",
    )
    with pytest.warns(RuntimeWarning, match="3 steps") as caught:
        model.fit(X, y)
    assert sum(issubclass(w.category, RuntimeWarning) for w in caught) == 1
    assert sum(row["repairs"] for row in model.history_) == 3
    assert (
        np.isfinite(model.log_marginal_likelihood_)
        and np.isfinite(model.predict_proba(X)).all()
    )
    assert model.history_[-1]["objective"] > model.history_[0]["objective"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{}, {"method": "vi"}, {"method": "bcm"}])
def test_a_first_point_without_a_factor_gets_more_jitter(options):
    """L-BFGS takes a point without one for a wall, and would stay there: an untrained
    model.
    """
    X = np.linspace(0, 6, 40)[:, None]
    y = np.sin(X[:, 0])
    gp = GPRegressor(**nest(jitter=0.0, max_epochs=20, random_state=0, **options))
    gp.fit(X, y, eval_set=(X, y))
    assert gp.score(X, y) > 0.999 and gp.n_epochs_ > 1


@pytest.mark.filterwarnings("ignore")
def test_a_warm_up_ends_with_a_posterior():
    """Labels that contradict each other, ten times over: sites of negative precision in
    the last step of moment matching.
    """
    X = np.repeat(np.random.default_rng(27).normal(size=(4, 2)), 3, axis=0)
    options = dict(random_state=0, max_epochs=1, n_inducing=8, batch_size=4)
    clf = GPClassifier("vi", **nest(**options)).fit(
        X, np.arange(12) % 2, sample_weight=np.full(12, 10.0)
    )
    assert np.isfinite(clf.elbo_)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("method", "batch_size"), [("ep", None), ("sep", 20)])
def test_a_rate_that_is_far_too_large_is_halved_until_the_kernel_is_finite(
    method, batch_size
):
    """k(Z, Z) of the next step was not finite, in single precision after one step."""
    X, y = toy(60, 3)
    options = dict(
        learning_rate=1e4,
        batch_size=batch_size,
        max_epochs=3,
        n_inducing=6,
        random_state=0,
    )
    clf = GPClassifier(
        method, effort="fast", training=Training(dtype="float32"), **options
    ).fit(X, y)
    assert (
        np.isfinite(clf.log_marginal_likelihood_)
        and clf.history_[-1]["learning_rate"] < 20
    )
