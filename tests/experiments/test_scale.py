"""The model of the cost behaves as its parts say."""

from pathlib import Path

import pytest

from experiments import scale

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
FAST, SLOW = scale.NETWORKS.values()


def test_own_work_is_divided_by_the_ranks_and_the_order_is_not():
    costs = scale.fit_costs(RESULTS)
    one, many = (scale.forecast(costs, 10**9, gpus, *SLOW) for gpus in (1, 16))
    for part in ("survey", "reading", "steps"):
        assert getattr(many, part) == pytest.approx(getattr(one, part) / 16)
    assert many.order == one.order > 0 and one.sums == 0 < many.sums


def test_the_forecast_is_proportional_to_the_rows():
    costs = scale.fit_costs(RESULTS)
    small, large = (scale.forecast(costs, rows, 8, *FAST) for rows in (10**9, 10**10))
    assert tuple(large) == pytest.approx([10 * part for part in small])
    assert large.total == pytest.approx(10 * small.total)


def test_the_slower_of_reading_and_steps_counts():
    slow_steps = scale.Costs(survey=1e-6, read=1e-6, order=1e-7, step=1e-4, measured=True)
    found = scale.forecast(slow_steps, 10**9, 4, *SLOW)
    assert found.total == found.survey + found.steps + found.sums


def test_a_slower_network_is_never_faster():
    costs = scale.fit_costs(RESULTS)
    for gpus in (1, 2, 64):
        fast, slow = (scale.forecast(costs, 10**9, gpus, *network) for network in (FAST, SLOW))
        assert slow.total >= fast.total and slow.sums >= fast.sums
