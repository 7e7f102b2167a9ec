"""Bids of costly members: what a gain and a second are worth."""

import numpy as np
import pytest

from cavity import GPClassifier
from cavity.fitting.bids import find_gain
from cavity.fitting.held_out import HeldOut
from cavity.fitting.options.policy import bids as policy
from cavity.pool.boosting import Boosting
from cavity.pool.plan import Bid, MembersPlan
from cavity.pool.seconds import MemberSize

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


def test_members_take_longer_on_more_rows():
    small = MemberSize(1000, 30, 3, 3)
    full = small._replace(rows=20_000)
    assert 10 < full.boost(50) / small.boost(50) < 100
    assert 10 < full.grow(50) / small.grow(50) < 25
    assert 1 < full.train(300) / small.train(300) < 20


def test_a_steeper_quick_fit_buys_more_rounds():
    usual = Boosting(rate=0.1, seed=0)
    bought = [usual.buy_rounds(slope, 2).first for slope in (0.0, 0.01, 0.04, 1.0)]
    assert bought == sorted(bought)
    assert bought[0] == usual.count_first(2)
    assert bought[-1] == usual.most_reach / usual.rate


@pytest.mark.parametrize("accepted", [False, True])
def test_costly_members_are_fitted_in_full_if_a_second_is_cheap(monkeypatch, accepted):
    monkeypatch.setattr(policy, "BID_SECONDS", 0.0)
    monkeypatch.setattr(
        policy, "PRICE", {"balanced": 0.0 if accepted else float("inf")}
    )
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3300, 4))
    y = (np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] > rng.normal(size=len(X))).astype(int)
    model = GPClassifier(random_state=0, n_inducing=20, max_epochs=2)
    bids = model.fit(X, y).plan_.members.bids
    assert {bid.name for bid in bids} == {"boosting", "extra trees", "fit to all rows"}
    assert all(bid.accepted is accepted for bid in bids)
    full = [bid for bid in bids if bid.took is not None]
    assert len(full) == 2 * accepted
    assert all(bid.seconds > 0 and bid.gain >= 0 for bid in bids)
    assert "bid" in str(model.plan_)


def test_a_stored_plan_keeps_its_bids():
    bid = Bid("boosting", 12.0, 1e-4, False)
    plan = MembersPlan(pools=True, linear=True, bids=(bid,))
    stored = {"pools": True, "linear": True, "bids": [list(bid)]}
    assert MembersPlan.from_json(stored) == plan


@pytest.mark.parametrize(("seconds", "shown"), [(3.62, "3.6 s"), (1310.0, "1,310 s")])
def test_a_plan_prints_the_seconds_of_a_bid_as_a_number(seconds, shown):
    decision, promise = Bid("boosting", seconds, 0.0024, False).describe()
    assert decision == "boosting only quick"
    assert shown in promise and "0.0024 nats" in promise
