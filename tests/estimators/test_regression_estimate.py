"""`GPRegressor.estimate_` and `predict_interval`: leave-one-out against refits, and
what intervals hold of new rows.
"""

import numpy as np
import pytest

from cavity import GPRegressor, Training, load
from cavity.kernels import RBF
from cavity.prediction.target_estimate import estimate_targets

FIXED = dict(
    kernel=RBF(0.7, 1.3),
    normalize_y=False,
    training=Training(learn=(), noise=0.05),
    random_state=0,
)


def curve(n, seed, noise=0.2):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + noise * rng.standard_normal(n)


@pytest.mark.filterwarnings("ignore:the model is not better")
@pytest.mark.parametrize("method", ["exact", "fitc", "vi", "sr", "pp"])
def test_leave_one_out_is_a_refit_without_the_row(method):
    """At fixed hyper-parameters and points, also for weights and for rows that were
    given twice.
    """
    X, y = curve(12, 0)
    weight = np.random.default_rng(1).uniform(0.5, 2, 12)
    rows = np.append(np.arange(12), 3)
    Z = None if method == "exact" else X[::3] + 0.1
    make = lambda: GPRegressor(
        method, **FIXED, **({} if Z is None else {"inducing": Z})
    )
    found = make().fit(X[rows], y[rows], sample_weight=weight[rows]).estimate_
    mean, sd = np.empty(12), np.empty(12)
    for i in range(12):
        kept = rows[rows != i]
        again = make().fit(X[kept], y[kept], sample_weight=weight[kept])
        mean[i : i + 1], sd[i : i + 1] = again.predict(X[i : i + 1], return_std=True)
    total = np.bincount(rows, weight[rows])
    expected = estimate_targets(mean, sd, y, total)
    assert found.rows == 12
    for name in set(found._fields) - {"how", "scores"}:
        assert getattr(found, name) == pytest.approx(
            getattr(expected, name), rel=1e-5
        ), name
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)


def test_scores_are_those_of_their_definitions():
    rng = np.random.default_rng(0)
    mean, sd, y = rng.normal(size=400), rng.uniform(0.5, 2, 400), rng.normal(size=400)
    found = estimate_targets(mean, sd, y, np.ones(400))
    assert found.rmse == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)))
    assert found.r2 == pytest.approx(1 - np.mean((y - mean) ** 2) / y.var())
    assert found.coverage_95 == pytest.approx(
        np.mean(np.abs(y - mean) < 1.959963984540054 * sd)
    )
    assert found.verdict is not None and "not better" in str(found.verdict)
    assert sum(np.abs(y - mean) <= found.find_half_width(0.9) * sd) == np.ceil(
        0.9 * 401
    )
    assert found.find_half_width(0.999) == max(found.scores)
    inside = estimate_targets(y, sd, y, np.ones(400))  # no error of 0 if all are inside
    assert inside.coverage_95_error == pytest.approx(2 * np.sqrt(0.95 * 0.05 / 400))
    heavy = estimate_targets(mean, sd, y, 3 * np.ones(400))
    assert heavy == found  # weights of one size change nothing, errors included


def hard_table(kind, n, rng):
    X = rng.uniform(-2, 2, (n, 1))
    noise = rng.standard_normal(n)
    if kind == "heteroscedastic":
        noise *= 0.05 + 0.4 * np.abs(X[:, 0])
    else:
        noise = np.where(rng.random(n) < 0.05, 4.0, 0.1) * noise
    return X, np.sin(2 * X[:, 0]) + noise


@pytest.mark.parametrize(("kind", "n"), [("heteroscedastic", 40), ("outliers", 100)])
def test_intervals_hold_what_they_promise_where_normal_ones_do_not(kind, n):
    """Over several tables; outliers make normal 50 % intervals far too wide."""
    inside, normal = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        gp = GPRegressor(random_state=0, max_epochs=40).fit(*hard_table(kind, n, rng))
        new, truth = hard_table(kind, 1000, rng)
        mean, sd = gp.predict(new, return_std=True)
        for coverage, plain in ((0.5, 0.6745), (0.9, 1.645)):
            low, high = gp.predict_interval(new, coverage)
            inside.append(np.mean((low <= truth) & (truth <= high)))
            normal.append(np.mean(np.abs(truth - mean) <= plain * sd))
    half, most = np.mean(inside[::2]), np.mean(inside[1::2])
    assert abs(half - 0.5) < 0.08 and abs(most - 0.9) < 0.04
    if kind == "outliers":
        assert np.mean(normal[::2]) > 0.75


def test_the_estimate_covers_new_rows_and_a_file_keeps_it(tmp_path):
    X, y = curve(120, 3)
    gp = GPRegressor(random_state=0).fit(X, y)
    new, truth = curve(2000, 4)
    mean, sd = gp.predict(new, return_std=True)
    fresh, found = estimate_targets(mean, sd, truth, np.ones(2000)), gp.estimate_
    for name in ("rmse", "r2", "log_density", "coverage_50", "coverage_95"):
        assert (
            abs(getattr(found, name) - getattr(fresh, name))
            < 2 * getattr(found, f"{name}_error") + 0.02
        )
    assert found.verdict is None and "as many rows as they should" in found.trust
    gp.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.estimate_ == found
    np.testing.assert_array_equal(
        again.predict_interval(new[:5]), gp.predict_interval(new[:5])
    )


@pytest.mark.parametrize("method", ["nystrom", "cg", "bcm"])
def test_methods_without_an_estimate_have_normal_intervals(method):
    X, y = curve(40, 5)
    gp = GPRegressor(method, n_inducing=10, max_epochs=2, random_state=0).fit(X, y)
    assert not hasattr(gp, "estimate_")
    mean, sd = gp.predict(X, return_std=True)
    np.testing.assert_allclose(
        gp.predict_interval(X)[1], mean + 1.6448536269514722 * sd
    )


def test_copies_of_a_table_change_nothing():
    """Equal targets of equal rows do not tell that targets have no noise."""
    X, y = curve(40, 6)
    options = {"random_state": 0, "max_epochs": 20}
    once = GPRegressor(**options).fit(X, y)
    often = GPRegressor(**options).fit(np.repeat(X, 4, 0), np.repeat(y, 4))
    assert often.noise_ == once.noise_ and often.estimate_ == once.estimate_
