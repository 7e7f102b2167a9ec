"""`GPRegressor.estimate_` and `predict_interval`: held-out rows against refits, and what
intervals hold of new rows.
"""

import time

import numpy as np
import pytest

from cavity import GPRegressor, Training, load
from cavity.kernels import RBF
from cavity.prediction.target_estimate import estimate_targets
from cavity.prediction.target_spread import EVEN, _Rows, learn_spread
from support import slow

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
    mean = np.empty(12)
    sd = np.empty(12)
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
    mean = rng.normal(size=400)
    sd = rng.uniform(0.5, 2, 400)
    y = rng.normal(size=400)
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


@pytest.mark.parametrize(
    ("kind", "n"), [slow("heteroscedastic", 40), ("outliers", 100)]
)
def test_intervals_hold_what_they_promise_where_normal_ones_do_not(kind, n):
    """Over several tables; outliers make normal 50 % intervals far too wide."""
    inside = []
    normal = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        gp = GPRegressor(random_state=0, max_epochs=20).fit(*hard_table(kind, n, rng))
        new, truth = hard_table(kind, 1000, rng)
        mean, sd = gp.predict(new, return_std=True)
        for coverage, plain in ((0.5, 0.6745), (0.9, 1.645)):
            low, high = gp.predict_interval(new, coverage)
            inside.append(np.mean((low <= truth) & (truth <= high)))
            normal.append(np.mean(np.abs(truth - mean) <= plain * sd))
    half = np.mean(inside[::2])
    most = np.mean(inside[1::2])
    assert abs(half - 0.5) < 0.08 and abs(most - 0.9) < 0.04
    if kind == "outliers":
        assert np.mean(normal[::2]) > 0.75


def test_the_estimate_covers_new_rows_and_a_file_keeps_it(tmp_path):
    X, y = curve(120, 3)
    gp = GPRegressor(random_state=0).fit(X, y)
    new, truth = curve(2000, 4)
    mean, sd = gp.predict(new, return_std=True)
    fresh = estimate_targets(mean, sd, truth, np.ones(2000))
    found = gp.estimate_
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


def small_table(seed):
    """A table of 30 to 120 rows, and 1,000 new ones; every third has uneven noise."""
    rng = np.random.default_rng(seed)
    n = int(rng.choice([30, 60, 120]))
    columns = int(rng.choice([2, 5, 10]))
    X = rng.normal(size=(n + 1000, columns))
    w = rng.normal(size=columns)
    f = np.sin(X @ w) + X[:, 0] if seed % 2 else X @ w
    spread = np.exp(0.8 * X[:, 1]) if seed % 3 == 0 else 1.0
    y = f + spread * rng.choice([0.2, 0.7]) * rng.normal(size=len(X))
    return (X[:n], y[:n]), (X[n:], y[n:])


@pytest.mark.parametrize("n_tables", [6, slow(40)])
def test_on_average_the_estimate_is_neither_too_good_nor_too_bad(n_tables):
    """Leave-one-out at learnt hyper-parameters was too good by 1 error."""
    z = []
    inside = []
    for seed in range(n_tables):
        rows, (new, truth) = small_table(seed)
        gp = GPRegressor(random_state=0).fit(*rows)
        mean, sd = gp.predict(new, return_std=True)
        fresh = estimate_targets(mean, sd, truth, np.ones(1000))
        found = gp.estimate_
        z.append(
            [
                (getattr(found, name) - getattr(fresh, name))
                / getattr(found, f"{name}_error")
                for name in ("rmse", "r2", "log_density")
            ]
        )
        low, high = gp.predict_interval(new, 0.9)
        inside.append(np.mean((low <= truth) & (truth <= high)))
    assert (np.abs(np.mean(z, axis=0)) < (0.3 if n_tables == 40 else 0.6)).all(), z
    assert abs(np.mean(inside) - 0.9) < 0.05


@pytest.mark.parametrize("kind", ["grows", slow("valley")])
def test_intervals_are_wide_where_the_noise_is(kind):
    """By quarters of the rows, ordered by their true spread, over several tables."""
    inside = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2, 2, size=(3400, 2))
        spread = 0.3 * np.exp(0.8 * X[:, 1])
        if kind == "valley":
            spread = 0.05 + 0.4 * np.abs(X[:, 0])
        y = np.sin(2 * X[:, 0]) + spread * rng.normal(size=len(X))
        gp = GPRegressor("vi", n_inducing=20, max_epochs=15, random_state=0)
        gp.fit(X[:400], y[:400])
        low, high = gp.predict_interval(X[400:], 0.9)
        hit = (low <= y[400:]) & (y[400:] <= high)
        order = np.argsort(spread[400:])
        inside.append([hit[quarter].mean() for quarter in np.array_split(order, 4)])
    assert (np.abs(np.mean(inside, axis=0) - 0.9) < 0.05).all(), inside


def test_residuals_that_are_even_teach_no_spread():
    found = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(150, 4))
        ratio = np.abs(rng.normal(size=150))
        weight = np.ones(150)
        part = np.arange(150) % 5
        spread, s = learn_spread(X, X[:, 0], ratio, weight, part)
        found += len(spread.low) > 0
        if not len(spread.low):
            assert (s == 1).all() and (spread.at(X, X[:, 0]) == 1).all()
    assert found <= 4


def test_a_spread_is_learnt_from_the_other_parts():
    """Residuals of a part do not change the spread at its own rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    part = np.arange(300) % 5
    ratio = np.exp(X[:, 1]) * np.abs(rng.normal(size=300))
    rows = _Rows(
        EVEN._replace(low=X.min(0), middle=0 * X[0], high=X.max(0)).expand(X),
        ratio,
        0 * part + 1.0,
    )
    parts = [part == i for i in range(5)]
    held = rows.hold_out(parts, 0.03)
    other = rows._replace(ratio=np.where(part == 2, 9.0, ratio)).hold_out(parts, 0.03)
    np.testing.assert_array_equal(held[part == 2], other[part == 2])
    assert not np.allclose(held[part != 2], other[part != 2])
    assert np.corrcoef(held, X[:, 1])[0, 1] > 0.9


def test_large_tables_are_judged_by_one_more_fit_and_eval_set_by_its_rows():
    X, y = curve(5200, 6)
    few = dict(method="svi", n_inducing=10, max_epochs=3, random_state=0)
    one = GPRegressor(**few).fit(X, y)
    assert one.plan_.judging.how == "one fold" and one.estimate_.rows == 1040
    assert one.plan_.seconds["folds"] > 0 and one.plan_.total_seconds > 0
    new, truth = curve(50, 7)
    given = GPRegressor(**few).fit(X, y, eval_set=(new, truth))
    mean, sd = given.predict(new, return_std=True)
    expected = estimate_targets(mean, sd, truth, np.ones(50))
    assert given.estimate_.rmse == pytest.approx(expected.rmse)
    assert given.estimate_.how == "eval_set" and given.estimate_.rows == 50


def test_a_plan_says_how_long_a_fit_takes():
    X, y = curve(150, 8)
    begun = time.process_time()
    plan = GPRegressor(random_state=0).fit(X, y).plan_
    taken = time.process_time() - begun
    assert set(plan.seconds) == {"training", "folds"}
    assert "about" in str(plan) and plan.judging.parts == 5
    assert 0.1 * taken < plan.total_seconds < 30 * taken  # other work slows the machine


@pytest.mark.filterwarnings("ignore:the model is not better")
def test_rows_that_occur_twice_are_held_out_together():
    X, y = curve(30, 9)
    both = np.concatenate([X, X]), np.concatenate([y, y + 0.01])
    gp = GPRegressor(random_state=0, max_epochs=20).fit(*both)
    new, truth = curve(1000, 10)
    mean, sd = gp.predict(new, return_std=True)
    fresh = estimate_targets(mean, sd, truth, np.ones(1000))
    assert gp.estimate_.rmse > 0.5 * fresh.rmse


@pytest.mark.parametrize("method", ["nystrom", "cg", "bcm"])
def test_methods_that_predict_from_rows_have_an_estimate_too(method):
    X, y = curve(60, 5)
    gp = GPRegressor(method, n_inducing=20, max_epochs=10, random_state=0).fit(X, y)
    new, truth = curve(1000, 11)
    rmse = np.sqrt(np.mean((gp.predict(new) - truth) ** 2))
    assert abs(gp.estimate_.rmse - rmse) < 2 * gp.estimate_.rmse_error


def test_a_source_has_normal_intervals():
    X, y = curve(40, 5)
    gp = GPRegressor("svi", n_inducing=10, max_epochs=2, random_state=0)
    gp.fit(lambda: [(X, y)])
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
