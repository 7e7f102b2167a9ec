"""A row of weight w is w identical rows; weight 0 is absence."""

import warnings

import numpy as np
import pytest

from cavity import GPClassifier, GPRegressor
from cavity.fitting.options import nest
from cavity.kernels import Matern52
from support import toy


def model(method="ep", **options):
    return GPClassifier(
        method,
        **nest(**{"n_inducing": 10, "max_epochs": 5, "random_state": 0} | options),
    )


def counts(rows, seed=1):
    return np.random.default_rng(seed).integers(0, 4, size=rows)


def same(one, other, new, tol):
    """The two models are one: latent values, evidence, hyper-parameters."""
    for a, b in zip(one.predict_latent(new), other.predict_latent(new), strict=True):
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol)
    np.testing.assert_allclose(
        one.predict_proba(new), other.predict_proba(new), rtol=0, atol=tol
    )
    assert one.log_marginal_likelihood_ == pytest.approx(
        other.log_marginal_likelihood_, rel=tol
    )
    np.testing.assert_allclose(
        one.inducing_points_, other.inducing_points_, rtol=tol, atol=tol
    )
    np.testing.assert_allclose(one.noise_, other.noise_, rtol=tol)


@pytest.mark.parametrize("schedule", ["inner-exact", "outer"])
def test_weights_are_repetitions_on_every_schedule(make_table, schedule):
    X, y, new = make_table(3)
    w = counts(len(y))
    options = {"schedule": schedule, "max_epochs": 2, "kernel": Matern52()}
    weighted = model(**options).fit(X, y, sample_weight=w)
    repeated = model(**options).fit(X.repeat(w, axis=0), y.repeat(w))
    same(weighted, repeated, new, 1e-9)


def test_ones_and_none_are_the_same_bits(table, method):
    X, y, new = table
    none, ones = (
        model(method).fit(X, y, sample_weight=w) for w in (None, np.ones(len(y)))
    )
    np.testing.assert_array_equal(none.predict_proba(new), ones.predict_proba(new))
    a, b = (model(method).fit(X, y, sample_weight=w) for w in (2, np.full(len(y), 2.0)))
    np.testing.assert_array_equal(a.predict_proba(new), b.predict_proba(new))
    assert not np.allclose(a.predict_proba(new), none.predict_proba(new))


def test_all_weights_tiny_is_hardly_any_evidence(table, method):
    """The posterior is nearly the prior, probabilities nearly uniform, and log evidence
    is proportional to the weight.
    """
    X, y, new = table
    one, two = (
        model(method, learn=()).fit(X, y, sample_weight=np.full(len(y), w))
        for w in (1e-4, 2e-4)
    )
    np.testing.assert_allclose(one.predict_proba(new), 1 / len(one.classes_), atol=0.01)
    assert one.log_marginal_likelihood_ < 0
    assert two.log_marginal_likelihood_ == pytest.approx(
        2 * one.log_marginal_likelihood_, rel=0.02
    )


@pytest.mark.parametrize("kind", [GPClassifier, GPRegressor])
def test_weights_that_were_normalised_are_told(kind):
    """60 rows that weigh 1 together are one row: the model would know next to nothing,
    silently.
    """
    X, y = toy(60, 2)
    more = {"calibration": None} if kind is GPClassifier else {}
    gp = kind(n_inducing=5, max_epochs=2, random_state=0, **more)
    with pytest.warns(UserWarning, match="1 for 60"):
        gp.fit(X, y, sample_weight=np.full(60, 1 / 60))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="sample_weight")
        gp.fit(X, y, sample_weight=np.full(60, 0.5))


@pytest.mark.parametrize("how", ["balanced", {0: 2.0, 1: 0.5}, {0: 3}], ids=str)
def test_class_weight_is_a_weight_of_rows(make_table, method, how):
    X, y, new = make_table(2)
    X, y = X[15:], np.where(np.arange(45) < 9, 0, 1)
    by_class = (
        {"balanced": {0: 14.4 / 9, 1: 14.4 / 36}}.get(how)
        if isinstance(how, str)
        else how
    )
    w = np.array([by_class.get(label, 1.0) for label in y])
    here = model(method, class_weight=how).fit(X, y)
    there = model(method).fit(X, y, sample_weight=w)
    np.testing.assert_allclose(
        here.predict_proba(new), there.predict_proba(new), atol=1e-10, rtol=0
    )


def test_balanced_counts_weights_not_rows(make_table, method):
    X, y, new = make_table(3)
    w = counts(len(y))
    total = np.bincount(y, weights=w)
    by_class = 3 / (1 / total).sum() / total
    here = model(method, class_weight="balanced").fit(X, y, sample_weight=w)
    there = model(method).fit(X, y, sample_weight=w * by_class[y])
    np.testing.assert_allclose(
        here.predict_proba(new), there.predict_proba(new), atol=1e-10, rtol=0
    )


def test_class_weight_multiplies_sample_weight_and_keeps_names(make_table):
    X, y, new = make_table(3)
    names = np.array(["a", "b", "c"])[y]
    w = np.random.default_rng(5).uniform(0.5, 2.0, len(y))
    here = model(class_weight={"a": 2.0}).fit(X, names, sample_weight=w)
    there = model().fit(X, names, sample_weight=w * np.where(names == "a", 2.0, 1.0))
    np.testing.assert_array_equal(here.predict_proba(new), there.predict_proba(new))


@pytest.mark.parametrize(
    ("method", "says"),
    [("gfitc", True), ("rep", True), ("ep", False), ("laplace", False), ("vi", False)],
)
def test_methods_whose_factors_have_no_powers_say_what_light_rows_are_worth(
    method, says
):
    X, y = toy(30, 3)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        clf = GPClassifier(method, n_inducing=5, max_epochs=2).fit(
            X, y, sample_weight=np.full(30, 0.5)
        )
    assert any("underweighted" in str(w.message) for w in seen) == says
    assert any("underweighted" in said for said in clf.fit_warnings_) == says


@pytest.mark.parametrize("C", [2, 3])
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("gfitc", {}),
        ("ep", {"schedule": "outer", "optimizer": "lbfgs"}),
        ("laplace", {}),
    ],
    ids=["gfitc", "ep by L-BFGS", "laplace"],
)
def test_whole_weights_are_repetitions_where_sites_are_extrapolated(method, options, C):
    """The extrapolation that brings sites to convergence must not tell a row of weight
    w from w rows.
    """
    rng = np.random.default_rng(3)
    X, y, w = rng.normal(size=(15, 4)), np.arange(15) % C, rng.integers(1, 5, 15)
    options = {
        "inducing": X[:5],
        "max_epochs": 6,
        "tol": 0.01,
        "random_state": 0,
        "device": "cpu",
    } | options
    weighted = GPClassifier(method, **nest(**options)).fit(X, y, sample_weight=w)
    repeated = GPClassifier(method, **nest(**options)).fit(X.repeat(w, 0), y.repeat(w))
    np.testing.assert_allclose(
        weighted.predict_proba(X), repeated.predict_proba(X), rtol=0, atol=1e-9
    )
