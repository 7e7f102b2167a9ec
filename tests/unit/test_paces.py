"""The pace of mini-batches: rows of a batch and number of passes, by the size of the table."""

import pytest

from cavity.options.policy import (
    CROWDED,
    MIDDLE,
    MIDDLE_POOLED,
    MOST_BATCH_ROWS,
    MOST_STEPS,
    QUICK_CROWDED,
    QUICK_FEW,
    QUICK_MANY,
    STEADY,
    choose_pace,
    prefers_lbfgs,
)
from cavity.training.run_settings import RunSettings

ROWS = (1001, 2000, 3001, 10_000, 70_000, 10**6, 10**8)


@pytest.mark.parametrize(
    "pace", [STEADY, CROWDED, QUICK_FEW, QUICK_MANY, QUICK_CROWDED, MIDDLE, MIDDLE_POOLED]
)
def test_batches_and_steps_are_bounded_and_grow_with_the_rows(pace):
    batches = [pace.batch_rows(n) for n in ROWS]
    assert all(pace.least_rows <= batch <= MOST_BATCH_ROWS for batch in batches)
    assert batches == sorted(batches)
    for n, batch in zip(ROWS, batches, strict=True):
        epochs = pace.epochs(n, batch)
        steps = epochs * n / batch
        assert epochs >= 3
        assert steps >= min(pace.least_steps + n // 50, MOST_STEPS)
        assert epochs == 3 or steps - n / batch < MOST_STEPS  # one pass less would be below the most steps


@pytest.mark.parametrize(
    ("rows", "latent", "quick", "otherwise"),
    [
        (6000, 1, QUICK_MANY, STEADY),
        (6000, 4, QUICK_MANY, STEADY),
        (2000, 5, QUICK_FEW, STEADY),
        (2000, 10, QUICK_FEW, STEADY),
        (2000, 11, QUICK_MANY, STEADY),
        (6000, 8, QUICK_FEW, STEADY),
        (2001, 9, MIDDLE, STEADY),
        (6000, 15, MIDDLE, STEADY),
        (6001, 10, STEADY, STEADY),
        (6000, 16, QUICK_MANY, STEADY),
        (6000, 30, QUICK_MANY, STEADY),
        (6000, 31, QUICK_CROWDED, CROWDED),
        (6001, 31, CROWDED, CROWDED),
    ],
)
def test_the_pace_depends_on_classes_and_rows(rows, latent, quick, otherwise):
    assert choose_pace(rows, latent, recommended=True, hurries=True) is quick
    assert choose_pace(rows, latent, recommended=True, hurries=False) is otherwise
    assert choose_pace(rows, latent, recommended=False, hurries=False) is STEADY


@pytest.mark.parametrize(
    ("rows", "latent", "pace"),
    [
        (6001, 1, STEADY),
        (2000, 6, QUICK_FEW),
        (6000, 6, MIDDLE_POOLED),
        (6000, 15, MIDDLE_POOLED),
        (6000, 16, QUICK_MANY),
    ],
)
def test_trees_of_a_pool_make_up_for_fewer_steps(rows, latent, pace):
    assert choose_pace(rows, latent, recommended=True, hurries=True, pooled=True) is pace
    assert choose_pace(rows, latent, recommended=True, hurries=False, pooled=True) is STEADY
    assert MIDDLE_POOLED.epochs(6000, 250) < MIDDLE.epochs(6000, 250)


def test_batches_do_not_jump_where_the_pace_changes():
    assert 0 <= MIDDLE.batch_rows(2001) - QUICK_FEW.batch_rows(2000) <= 5


def test_an_annealed_rate_rises_from_a_tenth_and_falls_to_the_final_rate():
    settings = RunSettings(rate=1.0, final_rate=0.01, anneal=True, max_epochs=100)
    rates = [settings.rate_at(epoch) for epoch in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[:6] == sorted(rates[:6])
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert rates[50] == pytest.approx(0.505)
    assert rates[100] == pytest.approx(0.01)


def test_lbfgs_is_for_small_tables_and_for_larger_ones_with_two_to_four_latent_functions():
    largest = {
        latent: max(n for n in (1000, 1001, 6000, 6001) if prefers_lbfgs(n, latent))
        for latent in (1, 2, 4, 5)
    }
    assert largest == {1: 1000, 2: 6000, 4: 6000, 5: 1000}
