"""The weights of a geometric pool."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from cavity.pool.pool import Pool
from cavity.pool.weights import TEMPERATURE_PENALTY, fit_temperature, fit_weights

NO_VAR = np.empty((0, 0))  # only a gate reads it


def rows(n=400, C=3, seed=0, sharpness=1.0):
    """Scores, and labels drawn from softmax(sharpness · scores)."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, C)) * 2
    p = np.exp(log_softmax(sharpness * scores, axis=1))
    return log_softmax(scores, axis=1), (p.cumsum(1) < rng.random((n, 1))).sum(1).clip(
        0, C - 1
    )


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 2.0, 4.0])
def test_a_temperature_is_the_best_of_a_search(sharpness):
    logs, y = rows(n=4000, sharpness=sharpness)
    omega = np.linspace(0.5, 1.5, len(y))

    def loss(v):
        own = log_softmax(np.exp(v) * logs, axis=1)[np.arange(len(y)), y]
        return -(omega @ own) + TEMPERATURE_PENALTY * abs(v)

    best = np.exp(
        minimize_scalar(
            loss, bounds=(-3, 3), method="bounded", options={"xatol": 1e-10}
        ).x
    )
    found = fit_temperature(logs, y, omega)
    assert found == pytest.approx(best, rel=1e-6)
    assert found == pytest.approx(sharpness, rel=0.1)
    assert fit_weights([logs], y, omega) == [found]


def test_few_rows_leave_the_temperature_and_the_weights_where_they_are():
    logs, y = rows(n=4, sharpness=4.0)
    assert fit_temperature(logs, y, np.ones(4)) == 1.0
    assert fit_temperature(np.full_like(logs, np.nan), y, np.ones(4)) == 1.0
    logs, y = rows(n=4)
    other = np.log(np.full_like(logs, 1 / 3))
    assert np.abs(fit_weights([logs, other], y, np.ones(4)) - [1, 0]).max() < 0.35


def test_a_temperature_stays_within_its_bounds():
    logs = rows(n=2000)[0]
    best, worst = logs.argmax(1), logs.argmin(1)
    assert fit_temperature(logs, best, np.ones(2000)) == pytest.approx(20.0)
    assert fit_temperature(logs, worst, np.ones(2000)) == pytest.approx(0.05)


def test_a_useless_member_gets_no_weight_and_a_harmful_one_is_never_computed():
    logs, y = rows(n=2000)
    noise = log_softmax(np.random.default_rng(1).normal(size=logs.shape) * 3, axis=1)
    np.testing.assert_allclose(
        fit_weights([logs, noise], y, np.ones(2000)), [1, 0], atol=0.1
    )
    first, second = fit_weights([noise, logs], y, np.ones(2000))
    assert second > 0.9 and first < 0.1
    wrong = np.random.default_rng(1).normal(size=logs.shape)
    wrong[np.arange(2000), y] -= 2  # against the true class
    harmful = log_softmax(wrong, axis=1)
    weight, other = fit_weights([logs, harmful], y, np.ones(2000))
    assert other == 0
    absent = object()  # has no log_proba
    found = Pool(weight, (absent,), (other,)).combine(logs, np.empty((2000, 1)), NO_VAR)
    np.testing.assert_array_equal(
        found, Pool(weight).combine(logs, np.empty((2000, 1)), NO_VAR)
    )


def test_no_pool_changes_nothing():
    logs, _ = rows()
    assert Pool().combine(logs, np.zeros((400, 1)), NO_VAR) is logs
    np.testing.assert_allclose(
        np.exp(Pool(0.5).combine(logs, logs, NO_VAR)).sum(1), 1.0
    )
