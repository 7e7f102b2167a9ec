"""The pace of mini-batches: rows of a batch and number of passes, by the size of the table."""

import pytest

from cavity.options.policy import (
    BRISK,
    CROWDED,
    MOST_BATCH_ROWS,
    MOST_STEPS,
    STEADY,
    choose_pace,
    prefers_lbfgs,
)

ROWS = (1001, 2000, 3001, 10_000, 70_000, 10**6, 10**8)


@pytest.mark.parametrize("pace", [STEADY, BRISK, CROWDED])
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
    ("rows", "latent", "recommended", "hurries", "pace"),
    [
        (2000, 6, True, True, BRISK),
        (2000, 6, True, False, STEADY),
        (2001, 6, True, True, STEADY),
        (2000, 4, True, True, STEADY),
        (2000, 31, True, True, CROWDED),
        (2000, 31, False, False, STEADY),
    ],
)
def test_the_pace_depends_on_classes_and_rows(rows, latent, recommended, hurries, pace):
    assert choose_pace(rows, latent, recommended=recommended, hurries=hurries) is pace


@pytest.mark.parametrize(
    ("rows", "latent", "pace"),
    [
        (2000, 1, STEADY),
        (2001, 1, BRISK),
        (6000, 4, STEADY),
        (6000, 10, BRISK),
        (6001, 10, STEADY),
        (6000, 11, STEADY),
    ],
)
def test_a_pool_with_trees_takes_fewer_steps_on_middle_tables(rows, latent, pace):
    assert choose_pace(rows, latent, recommended=True, hurries=True, pooled=True) is pace
    assert choose_pace(rows, latent, recommended=True, hurries=False, pooled=True) is STEADY


def test_lbfgs_is_for_small_tables_and_for_larger_ones_with_two_to_four_latent_functions():
    largest = {
        latent: max(n for n in (1000, 1001, 5000, 5001) if prefers_lbfgs(n, latent))
        for latent in (1, 2, 4, 5)
    }
    assert largest == {1: 1000, 2: 5000, 4: 5000, 5: 1000}
