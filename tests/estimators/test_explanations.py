"""Partial dependence, contributions to single rows, and the importance of columns:
laws, and references on raw frames.
"""

import pickle
import time

import numpy as np
import pandas as pd
import pytest
from scipy.special import logit, logsumexp

from cavity import BadInput, BadOption, GPClassifier, GPRegressor, load
from cavity.explain.contributions import compute_importance, compute_log_odds
from cavity.explain.raw_rows import choose_rows, count_affordable, find_columns
from cavity.fitting.options import nest
from cavity.prediction.draws import draw_log_proba
from cavity.tables.validation import Features, Prepared
from support import without_warnings

N = 240
pytestmark = pytest.mark.filterwarnings("ignore")


def make_table(seed=0):
    """A signal with missing cells, a category that matters, and noise of every kind."""
    rng = np.random.default_rng(seed)
    signal = rng.normal(50, 10, N)
    place = rng.choice(["東京", "Paris", "Oslo"], N, p=[0.5, 0.3, 0.2])
    table = pd.DataFrame(
        {
            "signal": np.where(rng.random(N) < 0.1, np.nan, signal),
            "place": place,
            "number": rng.normal(size=N),
            "coin": rng.choice(["heads", "tails"], N),
            "levels": [f"level {i}" for i in rng.integers(0, 50, N)],
            "date": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(rng.integers(0, 700, N), unit="D"),
            "key": [f"K-{i:05d}-{i * 7919 % 1000}" for i in range(N)],
            "same": "always",
        }
    )
    score = (signal - 50) / 10 + 1.5 * (place == "東京") - 0.7
    noisy = score + 0.4 * rng.normal(size=N)
    return (
        table,
        np.array(["low", "mid", "high"])[(noisy > -0.5).astype(int) + (noisy > 0.8)],
        noisy,
    )


@pytest.fixture(scope="module")
def fitted():
    table, labels, _ = make_table()
    with without_warnings():
        return (
            GPClassifier(n_inducing=25, effort="fast", random_state=0).fit(
                table, labels
            ),
            table,
            labels,
        )


@pytest.fixture(scope="module")
def regressor():
    table, _, values = make_table()
    with without_warnings():
        return (
            GPRegressor("vi", n_inducing=25, max_epochs=60, random_state=0).fit(
                table, values
            ),
            table,
            values,
        )


# ---------------------------------------------------------------- partial dependence
@pytest.mark.parametrize("column", ["signal", "place", "date", "number"])
def test_it_is_the_mean_over_raw_rows_with_one_value(fitted, column):
    clf, table, _ = fitted
    found = clf.partial_dependence(table, column, n_values=4, n_rows=60)
    rows = table.iloc[
        choose_rows(N, 60, np.random.RandomState(0).randint(2**31 - 1))
    ].reset_index(drop=True)
    assert found.rows == 60 and found.name == column
    for value, mean in zip(found.values, found.mean, strict=True):
        changed = rows.assign(
            **{column: pd.Series([value] * 60, dtype=table[column].dtype)}
        )
        np.testing.assert_allclose(mean, clf.predict_proba(changed).mean(0), atol=1e-9)
    assert (found.low <= found.mean).all() and (found.mean <= found.high).all()
    assert (found.low >= 0).all() and (found.high <= 1).all()


def test_values_are_those_of_the_table(fitted):
    clf, table, _ = fitted
    signal = clf.partial_dependence(table, "signal", n_values=6).values
    assert np.isnan(signal[-1]) and set(signal[:-1]) <= set(
        table["signal"]
    )  # the training rows have missing cells
    assert (
        table["signal"].quantile(0.9) < signal[-2] and (np.diff(signal[:-1]) > 0).all()
    )
    assert clf.partial_dependence(table, "place").values.tolist() == [
        "東京",
        "Paris",
        "Oslo",
    ]  # by frequency
    dates = clf.partial_dependence(table, "date", n_values=4)
    assert dates.kind == "date" and set(dates.values) <= set(table["date"].to_numpy())
    assert "2021-" in str(dates) and "P(high)" in str(dates)


def test_a_signal_moves_predictions_beyond_its_intervals_and_noise_does_not(
    fitted, regressor
):
    """No constant lies within all intervals of a signal; one does for noise."""
    for model, table, _ in (fitted, regressor):
        for column in ("signal", "place"):
            found = model.partial_dependence(table, column, n_values=8)
            assert (found.low.max(0) > found.high.min(0)).any()
        for column in ("number", "coin", "levels", "date"):
            found = model.partial_dependence(table, column, n_values=5)
            assert (found.low.max(0) <= found.high.min(0)).all(), found


METHODS = [
    ("ep", {}),
    ("vi", {}),
    ("laplace", {}),
    ("sep", {"share": "inducing"}),
]


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("method, options", METHODS, ids=str)
def test_probabilities_are_means_over_draws_of_the_latent_functions(
    method, options, classes
):
    """The law of total probability."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(30, 2))
    y = (X[:, 0] > 0).astype(int) + (classes == 3) * (X[:, 1] > 0.5)
    short = {"n_inducing": 6, "max_epochs": 3, "tol": 0.1, "random_state": 0}
    clf = GPClassifier(method, **nest(**short, **options)).fit(X, y)
    new = 3 * rng.normal(size=(6, 2))
    (log_p,) = draw_log_proba(clf._fitted, [new], 1000, 0)
    draws = np.exp(log_p)
    error = draws.std(0) / np.sqrt(len(draws)) + 1e-4
    assert (np.abs(draws.mean(0) - clf.predict_proba(new)) < 4.5 * error).all()


def test_the_interval_of_a_regressor_is_that_of_joint_draws(regressor):
    gp, table, _ = regressor
    found = gp.partial_dependence(table, "signal", n_values=3, n_rows=N)
    for k in range(3):
        changed = table.assign(signal=found.values[k])
        means = gp.sample_y(changed, 4000, random_state=k).mean(0)
        ends = np.quantile(means, [0.025, 0.975])
        np.testing.assert_allclose(
            [found.low[k], found.high[k]], ends, atol=0.12 * (ends[1] - ends[0])
        )


def test_arrays_have_columns_by_number_and_wrong_calls_say_so(fitted):
    clf, table, _ = fitted
    X = np.random.default_rng(0).normal(size=(60, 2))
    plain = GPClassifier("sep", n_inducing=5, max_epochs=5, random_state=0).fit(
        X, X[:, 1] > 0
    )
    found = plain.partial_dependence(X, -1, n_values=4)
    assert (
        found.name == "column 1"
        and found.mean.shape == (4, 2)
        and found.mean[0, 1] < found.low[-1, 1]
    )
    with pytest.raises(BadInput, match="'signal'"):
        clf.partial_dependence(table, "signals")
    with pytest.raises(BadInput, match="'key'"):
        clf.partial_dependence(table, "key")
    with pytest.raises(BadInput, match="column 9"):
        clf.partial_dependence(table, 9)
    with pytest.raises(BadOption, match="level"):
        clf.partial_dependence(table, "signal", level=1)


def test_all_rows_count_unless_time_is_short(fitted) -> None:
    clf, table, _ = fitted
    found = clf.partial_dependence(table, "number", n_values=1)
    changed = table.assign(number=found.values[0])
    assert found.rows == found.total == N
    np.testing.assert_allclose(found.mean[0], clf.predict_proba(changed).mean(0))


def test_intervals_from_a_sample_cover_the_mean_over_all_rows(fitted, regressor):
    for model, table, _ in (fitted, regressor):
        whole = model.partial_dependence(table, "place").mean
        inside = []
        for seed in range(20):
            found = model.partial_dependence(
                table, "place", n_rows=20, random_state=seed
            )
            inside.append((found.low <= whole) & (whole <= found.high))
        assert np.mean(inside) > 0.9


def test_rows_are_counted_by_their_pace() -> None:
    def predict(X):
        time.sleep(2e-5 * len(X))

    X = np.zeros((100_000, 1))
    assert count_affordable(predict, X, 10, seconds=0.5) in (800, 1600)
    assert count_affordable(predict, X[:2000], 1, seconds=0.5) == 2000
    assert count_affordable(predict, X, 10**9, seconds=0.5) == 100


# ---------------------------------------------------------------- single rows
def test_contributions_compare_raw_rows_with_other_cells(fitted, regressor):
    for model, table, _ in (fitted, regressor):
        rows = table[:3]
        background = table[100:110]
        found = model.explain_rows(rows, background)
        labelled = found.classes is not None
        predict, scale = (
            (model.predict_proba, logit)
            if labelled
            else (model.predict, lambda mean: mean)
        )
        for j, name in enumerate(table):
            for i in range(3):
                changed = pd.concat([rows[i : i + 1]] * 10, ignore_index=True)
                changed[name] = background[name].to_numpy()
                expected = scale(predict(rows)[i]) - scale(predict(changed).mean(0))
                np.testing.assert_allclose(
                    found.contributions[i, j], expected, atol=1e-8
                )
        assert found.values[0].tolist()[:2] == [
            f"{rows['signal'][0]:.6g}",
            rows["place"][0],
        ]


def test_importance_is_the_divergence_from_predictions_with_other_cells(fitted):
    clf, table, _ = fitted
    X = clf._result.background
    rows = X[:100]
    others = X[-50:]
    own = clf.predict_log_proba(Prepared(rows))
    used = find_columns(clf._features())[1] == list(table).index("signal")
    changed = np.repeat(rows, len(others), axis=0)
    changed[:, used] = np.tile(others[:, used], (len(rows), 1))
    mean = clf.predict_proba(Prepared(changed)).reshape(100, 50, -1).mean(1)
    expected = (np.exp(own) * (own - np.log(mean))).sum(1).mean()
    assert clf.feature_importance_[0] == pytest.approx(expected, abs=1e-9)


def test_contributions_of_sure_rows_do_not_vanish() -> None:
    """Log-odds of exp(±x): finite and exact where probabilities round to 0 or 1."""
    x = np.array([-800.0, -60.0, -0.5, 0.0, 3.0, 60.0])
    log_p = np.column_stack([-np.logaddexp(0, -x), -np.logaddexp(0, x)])
    expected = x.clip(-700, 700)
    np.testing.assert_allclose(compute_log_odds(log_p)[:, 0], expected, atol=1e-12)
    three = np.log(np.random.default_rng(0).dirichlet(np.ones(3), 50))
    np.testing.assert_allclose(compute_log_odds(three), logit(np.exp(three)))


@pytest.mark.parametrize(
    ("n_classes", "most"), [(3, 40_000), (30, 40_000), (300, 4000), (1000, 1200)]
)
def test_the_importance_of_columns_takes_fewer_rows_with_many_classes(n_classes, most):
    rng = np.random.default_rng(0)
    rows = []
    slopes = rng.normal(size=(8, n_classes))

    def predict(X):
        rows.append(len(X))
        scores = X @ slopes
        return scores - logsumexp(scores, axis=1, keepdims=True)

    def information(own, others):
        return (
            np.exp(own) * (own - logsumexp(others, axis=1) + np.log(others.shape[1]))
        ).sum(1)

    X = rng.normal(size=(150, 8))
    found = compute_importance(
        X,
        Features("GPClassifier", 8),
        predict,
        information,
        cost=1,
        relevance=None,
    )
    replaced = sum(
        rows[3:]
    )  # after one row that shows the classes, and the rows as they are, twice
    assert 0.8 * most < replaced <= most
    assert found.shape == (8,) and (found > 0).all()


# ---------------------------------------------------------------- importance of columns
def test_noise_of_every_kind_is_near_zero(fitted, regressor):
    for model, table, _ in (fitted, regressor):
        found = dict(zip(table, model.feature_importance_, strict=True))
        least = min(found["signal"], found["place"])
        assert least > 0.1
        for name in ("number", "coin", "levels", "date"):
            assert found[name] < 0.1 * least, found
        assert found["key"] == found["same"] == 0


def test_it_travels_with_the_model_but_its_rows_do_not(fitted, regressor, tmp_path):
    for model, _, _ in (fitted, regressor):
        model.save(tmp_path / "m")
        again = load(tmp_path / "m")
        copy = pickle.loads(pickle.dumps(model))
        for other in (again, copy):
            np.testing.assert_array_equal(
                other.feature_importance_, model.feature_importance_
            )
            assert other._result.background is None
    X = np.random.default_rng(0).normal(size=(50, 2))
    grown = GPClassifier("sep", n_inducing=5).partial_fit(X, X[:, 0] > 0)
    with pytest.raises(AttributeError, match="explain"):
        grown.feature_importance_
