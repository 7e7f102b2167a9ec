"""Ranks that take steps alone and share them afterwards."""

import math

import numpy as np
import pytest
import torch

from cavity import BadOption, GPClassifier, Training
from cavity.common.linalg import pack_symmetric, unpack_symmetric
from cavity.distributed import Local
from cavity.inference import copy_state
from cavity.rows.batches.in_memory import Batch
from cavity.training.exchange import (
    LEAST_MEETINGS,
    MOST_ALONE,
    MOST_EXACT,
    MOST_STEPS,
    Alone,
    Costs,
    Exchange,
    choose_steps,
    flatten_state,
    restore_state,
)
from cavity.training.guard import Guard
from cavity.training.optimisers import Adam
from support import machine, toy


class OneOf(Local):
    """One of some ranks that is never asked for a sum."""

    def __init__(self, world):
        self.world = world


class Means(Local):
    """The mean of this rank and of one whose values are known."""

    def __init__(self, other):
        self.other = other

    def average(self, values):
        return (values + self.other) / 2


def parts(m, size):
    """A mini-batch, and the parts of it that two ranks have."""
    batch = next(iter(m.rows.batches(size, torch.Generator().manual_seed(0))))
    cut = len(batch.index) // 3  # unequal parts
    return batch, [Batch(*(t[:cut] for t in batch)), Batch(*(t[cut:] for t in batch))]


@pytest.mark.parametrize("method", ["ep", "sep", "vi", "rep"])
def test_the_mean_of_steps_alone_is_the_step_together(method):
    """Sites add: after one step on each rank the mean of the sums is the sum of both; from a state with sites."""
    X, y = toy(90, 3, seed=4)
    m = machine(X, y, X[:6], method=method)
    batch, both = parts(m, 30)
    start = m.step(m.step(m.state, batch)[0], batch)[0]
    together = m.step(copy_state(start), batch)[0].sums
    alone = [m.engine.step(copy_state(start), p, Alone(OneOf(2)), None, False)[0].sums for p in both]
    for name in ("P", "h"):
        mean = sum(getattr(s, name) for s in alone) / 2
        torch.testing.assert_close(mean, getattr(together, name), rtol=1e-11, atol=1e-11)


def test_an_exchange_leaves_the_mean_of_all_ranks_in_place():
    X, y = toy(60, 3, seed=4)
    m = machine(X, y, X[:6], method="sep")
    both = parts(m, 30)[1]
    rule = Adam()
    state = m.state._replace(optimiser=rule.init(m.state.theta))
    mine, theirs = (m.engine.step(state, part, Alone(OneOf(2)), rule, False)[0] for part in both)
    tally = torch.tensor([1.0, 4.0, 5.0, 0.0, 1.0])  # caution, then the tally
    moved = torch.cat([(flatten_state(theirs) - flatten_state(state)).float(), tally])
    exchange, guard = Exchange(m.engine, Means(moved)), Guard(m.engine, Local(), caution=0.5, good=state)
    exchange.start(state)
    common, tally = exchange.meet(mine, guard, [2.0, 3.0, 0.0, 1.0])
    expected = (flatten_state(mine) + flatten_state(theirs)) / 2
    change = (expected - flatten_state(state)).abs().max()
    assert change > 1e-3
    np.testing.assert_allclose(flatten_state(common), expected, atol=1e-6 * float(change))
    assert tally == [3.0, 4.0, 0.0, 1.0] and guard.caution == 0.75 and guard.good is None


def test_a_state_survives_the_way_to_a_vector_and_back():
    X, y = toy(60, 3, seed=4)
    m = machine(X, y, X[:6], method="sep")
    state = m.step(m.state, parts(m, 30)[0])[0]._replace(optimiser=Adam().init(m.state.theta))
    again = restore_state(flatten_state(state), state, m.engine)
    for old, new in zip(
        (state.theta, state.sums.h, state.clock, *state.optimiser),
        (again.theta, again.sums.h, again.clock, *again.optimiser),
        strict=True,
    ):
        assert torch.equal(old, new)
    torch.testing.assert_close(again.sums.P, state.sums.P, rtol=1e-13, atol=1e-13)


def test_half_of_a_symmetric_matrix_is_all_of_it():
    A = torch.randn(3, 7, 7, dtype=torch.float64)
    A = A + A.mT
    packed = pack_symmetric(A)
    assert packed.shape == (3, 28) and torch.equal(unpack_symmetric(packed, 7), A)


@pytest.mark.parametrize("exchange", [1e-4, 1e-2, 0.3])
@pytest.mark.parametrize("work", [1e-3, 0.05, 2.0])
def test_the_chosen_number_of_steps_is_exact_where_that_is_cheap_and_else_large_enough(work, exchange):
    n_batches = 1000
    k = choose_steps(Costs(work, 1.5 * exchange, exchange), n_batches)
    assert (k == 1) == (1.5 * exchange <= MOST_EXACT * work)
    if k > 1:
        assert exchange / (k * work) <= MOST_ALONE or k == MOST_STEPS
        assert k == 2 or math.isclose(k, MOST_STEPS) or exchange / ((k - 1) * work) > MOST_ALONE


def test_ranks_meet_several_times_in_a_pass():
    assert choose_steps(Costs(1e-3, 1.0, 1.0), 40) == 40 // LEAST_MEETINGS
    assert choose_steps(Costs(1e-3, 1.0, 1.0), 3) == 1


@pytest.mark.parametrize("value", [0, -2, 1.5, True, "often", None])
def test_a_wrong_exchange_is_an_error_that_names_it(value):
    X, y = toy(20, 2, seed=0)
    with pytest.raises(BadOption, match="exchange="):
        GPClassifier(training=Training(exchange=value)).fit(X, y)
