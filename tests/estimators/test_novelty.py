"""predict_novelty: the share of training rows that are more usual, for every method of
both estimators.
"""

import numpy as np
import pytest
from scipy.stats import kstest

import cavity
from cavity import BadInput, GPClassifier, GPRegressor
from cavity.prediction.novelty import INSIDE, make_novelty
from support import classifier, slow, toy

N = 200
NEW = 2000
# Of the greatest distance between the distributions of novelty at N training rows and
# at NEW others: its 99.9 % quantile under equal distributions is 1.95 √(1/N + 1/NEW);
# the most unusual training row has 0.99, not 1.
FAR_FROM_UNIFORM = 1.95 * np.sqrt(1 / N + 1 / NEW) + 1 - INSIDE
CLASSIFIERS = ("ep", "sep", "rep", "vi")
SLOW = ("pep", "gfitc", "laplace")
REGRESSORS = ("exact", "fitc", "vi", "svi", "nystrom", "cg", "bcm")


def rows(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 2)) * [1.0, 20.0] + 5


def fitted(kind: type, method: str, **options):
    X = rows(N, 0)
    noise = 0.3 * np.random.default_rng(1).normal(size=N)
    f = np.sin(X[:, 0]) + X[:, 1] / 20 + noise
    y = np.digitize(f, np.quantile(f, [0.3, 0.6])) if kind is GPClassifier else f
    extra = {"effort": "fast"} if kind is GPClassifier else {}
    return kind(
        method, n_inducing=30, max_epochs=10, random_state=0, **extra, **options
    ).fit(X, y)


@pytest.fixture(
    scope="module",
    params=[
        *((GPClassifier, m) for m in CLASSIFIERS),
        *(slow((GPClassifier, m)) for m in SLOW),
    ]
    + [(GPRegressor, m) for m in REGRESSORS],
    ids=lambda p: f"{p[0].__name__}-{p[1]}",
)
def model(request):
    return fitted(*request.param)


def test_new_rows_of_the_same_kind_are_spread_evenly(model) -> None:
    found = model.predict_novelty(rows(NEW, 2))
    assert ((found >= 0) & (found <= 1)).all()
    assert kstest(found, "uniform").statistic < FAR_FROM_UNIFORM


def test_shifted_rows_are_novel(model) -> None:
    assert model.predict_novelty(rows(100, 3) + np.array([8.0, 160.0])).min() > 0.98


def test_it_grows_along_a_ray_away_from_the_data(model) -> None:
    ray = np.linspace(4, 12, 30)[:, None] * [[0.7, 14.0]] + [[5.0, 5.0]]
    found = model.predict_novelty(ray)
    assert (np.diff(found) >= -1e-9).all() and found[-1] > max(0.99, found[0] - 1e-9)


def test_rows_that_the_model_remembers_are_judged_as_rows_that_it_does_not() -> None:
    """As many inducing points as rows: the variance at a training row is far below that
    beside it.
    """
    X = rows(60, 0)
    y = np.sin(3 * X[:, 0]) + 0.01 * X[:, 1]
    gp = GPRegressor("exact", max_epochs=30, random_state=0).fit(X, y)
    assert gp.predict_novelty(X).mean() < gp.predict_novelty(rows(NEW, 2)).mean()
    assert (
        kstest(gp.predict_novelty(rows(NEW, 2)), "uniform").statistic
        < 1.95 * np.sqrt(1 / 60) + 0.01
    )


def test_ties_odd_variances_and_the_prior_have_a_novelty() -> None:
    found = make_novelty(np.ones(1), np.linspace(0.1, 0.5, 40)[:, None], np.ones(40))
    u = np.array([0.0, 0.1, 0.3, 0.5, 0.75, 1.0, 2.0])[:, None]
    np.testing.assert_allclose(found.at(u), [0, 0, 0.495, 0.99, 0.995, 1, 1], atol=1e-9)
    assert make_novelty(np.ones(1), np.full((5, 1), np.nan), np.ones(5)) is None
    assert np.isfinite(
        make_novelty(np.zeros(1), np.zeros((5, 1)), np.ones(5)).quantiles
    ).all()
    found = make_novelty(np.ones(1), np.full((20, 1), 0.3), np.ones(20))
    just = found.at(0.3 + np.array([[-1e-14], [0.0], [1e-14]]))
    np.testing.assert_allclose(just, just[1], atol=1e-4)


def test_a_weight_is_as_many_rows() -> None:
    rng = np.random.default_rng(0)
    var = rng.uniform(0.1, 0.9, (50, 3))
    weight = rng.integers(1, 4, 50)
    one = make_novelty(np.ones(3), var, weight.astype(float))
    other = make_novelty(np.ones(3), var.repeat(weight, axis=0), np.ones(weight.sum()))
    np.testing.assert_allclose(one.quantiles, other.quantiles, rtol=1e-12)


def test_a_file_keeps_it_and_partial_fit_has_none(tmp_path) -> None:
    X, y = toy(60, 3)
    clf = classifier(
        "sep", n_inducing=8, max_epochs=3, effort="fast", random_state=0
    ).fit(X, y)
    clf.save(tmp_path / "m")
    np.testing.assert_array_equal(
        cavity.load(tmp_path / "m").predict_novelty(X), clf.predict_novelty(X)
    )
    clf.partial_fit(X[:10], y[:10])
    with pytest.raises(BadInput, match=r"fit\(\)"):
        clf.predict_novelty(X)
