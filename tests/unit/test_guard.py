"""A failing step goes back to the last good state, halves damping and rates, and the fit goes on."""

import warnings
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from cavity import GPClassifier, GPRegressor, Training
from cavity.distributed import Local
from cavity.errors import NotPositiveDefinite
from cavity.inference import Engine
from cavity.kernels import RBF
from cavity.options import nest
from cavity.training.guard import Guard
from cavity.training.optimisers import OPTIMISERS
from support import machine, toy

SIGN = OPTIMISERS["sign"]


@dataclass
class Flaky:
    """An engine that says it failed, with spoilt results, at given calls."""

    engine: Engine
    fails: set[int]
    seen: list[tuple[float, float, float]] = field(
        default_factory=list
    )  # damping, rate, jitter of every call

    def step(self, state, batch, reduce, optimiser, full):
        call = len(self.seen)
        self.seen.append((float(state.damping), float(state.rate), float(state.jitter)))
        state, info = self.engine.step(state, batch, reduce, optimiser, full)
        if call in self.fails or -1 in self.fails:
            spoilt = state._replace(
                theta=state.theta * torch.nan, sums=state.sums._replace(h=state.sums.h * torch.nan)
            )
            return spoilt, info._replace(failed=torch.tensor(True))
        return state, info


def setting(fails, **options):
    X, y = toy(20, 3)
    run = machine(X, y, X[:5], kernel=RBF(1.0), damping=0.8, **options)
    flaky = Flaky(run.engine, set(fails))
    return run, flaky, Guard(flaky, Local())


def same(a, b):
    return all(
        torch.equal(x, y)
        for x, y in zip((a.theta, *a.sums, *a.sites), (b.theta, *b.sums, *b.sites), strict=True)
    )


def test_a_good_step_passes_through():
    run, flaky, guard = setting([])
    plain, _ = run.step(run.state, optimiser=SIGN)
    state, info = guard.advance(run.state, run.rows.whole(), SIGN, True)
    assert info is not None and guard.repairs == 0
    assert same(state, plain)
    assert flaky.seen == [(0.8, float(run.state.rate), float(run.state.jitter))]


def test_a_failed_step_goes_back_and_halves():
    run, flaky, guard = setting([2])
    whole = run.rows.whole()
    first, _ = guard.advance(run.state, whole, SIGN, True)
    second, _ = guard.advance(first, whole, SIGN, True)
    back, info = guard.advance(second, whole, SIGN, True)
    assert info is None and guard.repairs == 1
    assert same(back, first), "the state from which the last step succeeded"
    again, info = guard.advance(back, whole, SIGN, True)
    assert info is not None
    rate = float(run.state.rate)
    assert flaky.seen[2][:2] == (0.8, rate)
    assert flaky.seen[3][:2] == pytest.approx((0.4, rate / 2))
    # the plan's own damping and rate are not overwritten by the caution
    assert float(again.damping) == 0.8 and float(again.rate) == rate


def test_caution_wears_off():
    run, flaky, guard = setting([1])
    whole, state = run.rows.whole(), run.state
    state, _ = guard.advance(state, whole, SIGN, True)
    state, _ = guard.advance(state, whole, SIGN, True)
    for _ in range(60):
        state, info = guard.advance(state, whole, None, True)
        assert info is not None
    used = [damping for damping, _, _ in flaky.seen[2:]]
    assert used[0] == pytest.approx(0.4) and used == sorted(used) and used[-1] == pytest.approx(0.8)


def test_failures_in_a_row_keep_halving():
    run, flaky, guard = setting([1, 2, 3])
    whole, state = run.rows.whole(), run.state
    for _ in range(5):
        state, info = guard.advance(state, whole, None, True)
    assert info is not None and guard.repairs == 3
    assert [damping for damping, _, _ in flaky.seen] == pytest.approx([0.8, 0.8, 0.4, 0.2, 0.1])


def test_the_first_state_failing_raises_the_jitter():
    """No good state to go back to: the matrix itself is the trouble."""
    run, flaky, guard = setting([0, 1], jitter=1e-8)
    whole, state = run.rows.whole(), run.state
    for _ in range(3):
        state, info = guard.advance(state, whole, None, True)
    assert info is not None
    assert [jitter for _, _, jitter in flaky.seen] == pytest.approx([1e-8, 1e-7, 1e-6])


def test_a_failing_batch_leaves_no_trace_in_the_sites():
    """Mini-batches write site rows in place; going back undoes those of the failed step and of the step before."""
    run, _, guard = setting([3])
    state, states = run.state, []
    batches = list(run.rows.batches(6, torch.Generator().manual_seed(0)))
    for batch in batches[:3]:
        kept = state._replace(sites=type(state.sites)(*(t.clone() for t in state.sites)))
        states.append(kept)
        state, info = guard.advance(state, batch, SIGN, False)
        assert info is not None
    back, info = guard.advance(state, batches[3], SIGN, False)
    assert info is None
    assert same(back, states[2]), "the state before the last good step, row by row"


def test_giving_up_says_what_to_try():
    run, _, guard = setting([-1])
    state = run.state
    with pytest.raises(
        NotPositiveDefinite, match=r"jitter=.*raise jitter \(Training\(jitter=.*inducing='kmeans'"
    ):
        for _ in range(200):
            state, info = guard.advance(state, run.rows.whole(), None, True)
            assert info is None
    assert 10 <= guard.repairs < 200


# --- in a fit --------------------------------------------------------------------------------------------


def failing_at(monkeypatch, calls):
    """Let the engine's steps fail at these calls, counted over the whole fit."""
    real, count = Engine.step, iter(range(10**9))

    def step(self, state, batch, reduce, optimiser, full):
        call = next(count)
        state, info = real(self, state, batch, reduce, optimiser, full)
        if call in calls:
            state = state._replace(
                theta=state.theta * torch.nan, sums=state.sums._replace(P=state.sums.P * torch.nan)
            )
            info = info._replace(failed=torch.tensor(True))
        return state, info

    monkeypatch.setattr(Engine, "step", step)


@pytest.mark.filterwarnings("ignore:training stopped")
@pytest.mark.parametrize("method", ["ep", "sep"])
@pytest.mark.parametrize("batch_size", [None, 20])
def test_the_fit_goes_on(monkeypatch, method, batch_size):
    X, y = toy(60, 3)
    failing_at(monkeypatch, {3, 10, 11})
    model = GPClassifier(
        method, n_inducing=6, batch_size=batch_size, max_epochs=12, random_state=0, device="cpu"
    )
    with pytest.warns(RuntimeWarning, match="3 steps .*repaired") as caught:
        model.fit(X, y)
    assert sum(issubclass(w.category, RuntimeWarning) for w in caught) == 1
    assert sum(row["repairs"] for row in model.history_) == 3
    assert np.isfinite(model.log_marginal_likelihood_) and np.isfinite(model.predict_proba(X)).all()
    assert model.history_[-1]["objective"] > model.history_[0]["objective"]


def test_coinciding_inducing_points_without_jitter_are_mended():
    X, y = toy(30, 3)
    model = GPClassifier(
        kernel=RBF(1.0),
        inducing=np.repeat(X[:4], 2, axis=0),
        training=Training(jitter=0.0),
        max_epochs=5,
        device="cpu",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    assert sum(row["repairs"] for row in model.history_) > 0
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{}, {"method": "vi"}, {"method": "bcm"}])
def test_a_first_point_without_a_factor_gets_more_jitter(options):
    """L-BFGS takes a point without one for a wall, and would stay there: an untrained model."""
    X = np.linspace(0, 6, 40)[:, None]
    y = np.sin(X[:, 0])
    gp = GPRegressor(**nest(jitter=0.0, max_epochs=20, random_state=0, **options)).fit(X, y)
    assert gp.score(X, y) > 0.999 and gp.n_epochs_ > 1


@pytest.mark.filterwarnings("ignore")
def test_gfitc_with_points_that_coincide_is_repaired():
    X, y = toy(40, 3)
    gp = GPClassifier(
        "gfitc", inducing=np.repeat(X[:6], 2, axis=0), max_epochs=10, training=Training(jitter=0.0)
    ).fit(X, y)
    assert gp.n_epochs_ > 1 and gp.score(X, y) > 0.6


@pytest.mark.filterwarnings("ignore")
def test_a_warm_up_that_ends_without_a_posterior_goes_back():
    """Labels that contradict each other, ten times over: sites of negative precision in the last step of moment matching."""
    X = np.repeat(np.random.default_rng(27).normal(size=(4, 2)), 3, axis=0)
    options = dict(random_state=0, max_epochs=1, n_inducing=8, batch_size=4)
    clf = GPClassifier("vi", **nest(**options)).fit(X, np.arange(12) % 2, sample_weight=np.full(12, 10.0))
    assert np.isfinite(clf.elbo_)
