"""Bids of costly members: what a gain and a second are worth."""

import numpy as np
import pytest

from cavity.fitting.bids import find_gain
from cavity.fitting.held_out import HeldOut
from cavity.fitting.options.plan import TableSize
from cavity.fitting.options.time_estimate import compare_sizes
from cavity.pool.plan import Bid, MembersPlan

N = 2000


@pytest.fixture
def known():
    """Two classes by a coin of known bias: the Gaussian process, a copy, the truth."""
    rng = np.random.default_rng(0)
    p = rng.beta(0.5, 0.5, N)
    y = (rng.random(N) < p).astype(np.int64)
    own = np.clip(0.25 + 0.5 * p + rng.normal(0, 0.05, N), 0.01, 0.99)
    proba = [np.stack([1 - q, q], 1) for q in (own, own, np.clip(p, 1e-6, 1 - 1e-6))]
    rows = np.arange(N)
    return HeldOut(
        log_proba=np.log(np.stack(proba)),
        y=y,
        weight=np.ones(N),
        unit=rows,
        part=rows % 5,
        u=np.ones(N),
        rows=rows,
        how="",
        kind="held out",
    )


def test_a_copy_of_a_member_brings_nothing_and_the_truth_something(known):
    assert abs(find_gain(known, 1)) < 1e-3
    assert find_gain(known, 2) > 0.01


def test_a_member_gains_the_same_in_any_order_of_rows(known):
    order = np.random.default_rng(1).permutation(N)
    again = known._replace(
        log_proba=known.log_proba[:, order], y=known.y[order], weight=known.weight
    )
    assert find_gain(again, 2) == pytest.approx(find_gain(known, 2), abs=1e-6)


@pytest.mark.parametrize("name", ["boosting", "extra trees"])
def test_trees_take_longer_on_more_rows_but_not_much_longer_than_in_proportion(name):
    plan = MembersPlan(pools=True, rate=0.1, trees=50)
    small = TableSize(1000, 30, 3, 3, 1000.0)
    full = small._replace(rows=20_000, total=20_000.0)
    assert 1 < compare_sizes(name, plan, small, full) < 25


def test_a_stored_plan_keeps_its_bids():
    bid = Bid("boosting", 12.0, 1e-4, False)
    plan = MembersPlan(pools=True, linear=True, bids=(bid,))
    stored = {"pools": True, "linear": True, "bids": [list(bid)]}
    assert MembersPlan.from_json(stored) == plan


@pytest.mark.parametrize(("seconds", "shown"), [(3.62, "3.6 s"), (1310.0, "1,310 s")])
def test_a_plan_prints_the_seconds_of_a_bid_as_a_number(seconds, shown):
    decision, promise = Bid("boosting", seconds, 0.0024, False).describe()
    assert decision == "boosting left out"
    assert shown in promise and "0.0024 nats" in promise
