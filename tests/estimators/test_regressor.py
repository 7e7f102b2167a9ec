"""GPRegressor as a citizen of scikit-learn: its checks, bad input, options, and what a
user meets.
"""

import pickle
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from cavity import BadInput, BadOption, GPClassifier, GPRegressor
from cavity.fitting.options.library import method_names
from support import regressor, slow

pytestmark = pytest.mark.filterwarnings("ignore:.*were repaired:RuntimeWarning")
METHODS = list(method_names("regression"))
SHORT = {"n_inducing": 5, "max_epochs": 2, "tol": 0.1}
VARIANTS = [
    regressor("exact", noise=0.0, learn=("kernel",), jitter=1e-6, **SHORT),
]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3)) * [1.0, 20.0, 0.1]
Y = 30 + 5 * np.sin(X[:, 0]) + 0.2 * X[:, 1] + 0.3 * RNG.normal(size=40)


def quick(name):
    """Two methods learn; the others, which share their path, only find q."""
    learns = name in ("vi", "svi")
    return (
        SHORT
        | {"n_inducing": 5 if name == "vi" else 40}
        | ({} if learns else {"learn": ()})
    )


@parametrize_with_checks([regressor("exact", **quick("exact"))])
def test_checks_of_the_default(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [
        *(regressor(name) for name in METHODS),
        *(regressor(name, **quick(name)) for name in METHODS if name != "exact"),
        *VARIANTS,
    ],
    ids=repr,
)
def test_checks_of_every_method(estimator):
    check_estimator(estimator)


def short(method="exact", **options):
    return regressor(method, **SHORT | {"random_state": 0, "device": "cpu"} | options)


def fit_judged(model, X, y, weight=None):
    """Fit a model that `eval_set` judges, which saves the refits of an estimate."""
    return model.fit(X, y, sample_weight=weight, eval_set=(X[:5], y[:5]))


@cache
def fitted(method):
    """One fit that several tests look at, and none changes."""
    return fit_judged(short(method), X, Y)


@pytest.mark.parametrize("method", METHODS)
def test_the_units_of_the_columns_and_of_y_do_not_matter(method):
    scaled = X * [8.0, 0.25, 16.0]
    one = fitted(method)
    other = fit_judged(short(method), scaled, 4 * Y + 512)
    mean, sd = one.predict(X, return_std=True)
    scaled_mean, scaled_sd = other.predict(scaled, return_std=True)
    np.testing.assert_allclose(scaled_mean, 4 * mean + 512, rtol=1e-6)
    np.testing.assert_allclose(scaled_sd, 4 * sd, rtol=1e-6)
    assert other.noise_ == pytest.approx(16 * one.noise_, rel=1e-6)
    rows = (
        len(one.inducing_points_) if method == "sd" else len(Y)
    )  # the evidence is that of its subset
    evidence = one.log_marginal_likelihood_ - rows * np.log(4)
    assert other.log_marginal_likelihood_ == pytest.approx(evidence, abs=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_a_pickle_predicts_the_same_bits_and_a_clone_fits_the_same_model(method):
    gp = fitted(method)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(gp)).predict(X), gp.predict(X)
    )
    again = fit_judged(clone(gp), X, Y)
    np.testing.assert_array_equal(again.predict(X), gp.predict(X))
    assert hasattr(gp, "elbo_") == (method in ("vi", "svi", "cg"))
    shapes = {"exact": (40, 3), "bcm": (4, 10, 3)}
    assert gp.inducing_points_.shape == shapes.get(method, (5, 3))


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (None, "requires y"),
        (Y[:-1], "X has 40 rows but y has 39"),
        (np.where(np.arange(40) == 3, np.nan, Y), "y contains NaN"),
        (np.array(["a", "b"] * 20), "use GPClassifier"),
        (Y + 1j, "Complex"),
        (Y.astype(str), "must contain numbers"),
        (np.array(["2026-01-01"] * 40, dtype="M8[D]"), "must contain numbers"),
        (np.c_[Y, Y], r"shape \(40, 2\).*MultiOutputRegressor"),
        (3.0, "got scalar"),
        (Y * 1e200, "too large"),
    ],
)
def test_targets_that_cannot_be_used_are_named(y, words):
    with pytest.raises(BadInput, match=words):
        short().fit(X, y)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "krr"}, "'exact', 'fitc', 'vi', 'svi'"),
        ({"optimizer": "sgd"}, "'sign', 'lbfgs'"),
        ({"method": "vi", "optimizer": "sag"}, "q_update='gradient'"),
        ({"method": "svi", "optimizer": "gradient"}, "q_update='gradient'"),
        (
            {
                "method": "svi",
                "q_update": "gradient",
                "optimizer": "gradient",
                "batch_size": 10,
            },
            "needs all rows at once",
        ),
        ({"learn": ("epsilon",)}, "'kernel', 'noise', 'inducing'"),
        ({"method": "vi", "noise": 0.0, "learn": ()}, "without a density"),
        ({"noise": 0.0}, "cannot be learnt"),
        ({"noise": -1.0}, "at least 0"),
        ({"method": "fitc", "batch_size": 10}, "mini-batches: 'svi'"),
        ({"kernel": "rbf"}, "cavity.kernels"),
        ({"method": "bcm", "n_blocks": 0}, "at least 1"),
        ({"method": "bcm", "blocks": "kmeans"}, "'clustered', 'random'"),
        ({"method": "sd", "selection": "best"}, "'entropy', 'information'"),
        ({"method": "fitc", "inducing": "grid"}, "None for every row"),
        ({"inducing": "kmeans"}, "inducing= is not used by method='exact'"),
        ({"method": "sd", "inducing": X}, r"inducing= is not used by method='sd'"),
        ({"callbacks": 3}, "give a list"),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, dict) else "",
)
def test_an_option_without_meaning_is_refused_with_what_has_one(options, words):
    with pytest.raises(BadOption, match=words):
        short(**options).fit(X, Y)


def test_what_predict_cannot_do_is_said():
    gp = short().fit(X, Y)
    with pytest.raises(BadOption, match="exclude"):
        gp.predict(X, return_std=True, return_cov=True)
    with pytest.raises(BadOption, match="n_samples"):
        gp.sample_y(X, 0)
    with pytest.raises(BadInput, match="infinity"):
        gp.predict(np.full((2, 3), np.inf))


def test_too_many_rows_for_exact_are_refused_before_anything_is_allocated():
    many = np.arange(10_001.0)[:, None]
    with pytest.raises(BadOption, match="10,001"):
        short().fit(many, many[:, 0])


def test_constant_targets_are_predicted():
    np.testing.assert_allclose(
        short().fit(X, np.full(40, 7.0)).predict(X), 7.0, atol=1e-6
    )


@pytest.mark.parametrize("method", ["exact", "vi", "fitc"])
def test_what_is_learnt_from_weights_is_learnt_from_repeated_rows(method):
    times = np.where(np.arange(40) % 8 == 0, 2, 1)
    options = {"max_epochs": 15, "learn": ("kernel", "noise")}
    one = fit_judged(short(method, **options), X, Y, times)
    repeated = np.repeat(X, times, axis=0), np.repeat(Y, times)
    other = short(method, **options).fit(*repeated, eval_set=(X[:5], Y[:5]))
    # L-BFGS multiplies rounding from step to step
    assert one.noise_ == pytest.approx(other.noise_, rel=1e-4)
    np.testing.assert_allclose(one.predict(X), other.predict(X), rtol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_one_row_and_rows_at_one_place_are_enough(method):
    for rows, y in ((X[:1], Y[:1]), (np.ones((40, 3)), Y)):
        mean, sd = short(method).fit(rows, y).predict(X, return_std=True)
        np.testing.assert_allclose(mean, y.mean(), rtol=0.01)
        assert np.isfinite(sd).all()


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (np.where(np.arange(40) < 3, -1.0, 1.0), "3 negative"),
        (np.full(40, np.nan), "NaN"),
        (np.zeros(40), "not all 0|sample_weight is zero for every row"),
        (np.ones(39), "one finite number per row"),
        (["a"] * 40, "one finite number per row"),
    ],
)
def test_weights_that_cannot_be_used_are_named(weight, words):
    for estimator, y in ((short(), Y), (GPClassifier(max_epochs=1), Y > 30)):
        with pytest.raises(BadInput, match=words):
            estimator.fit(X, y, sample_weight=weight)


# --- rows that are not in memory ---------------------------------------------------------------------------
@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(600, 3))
    y = 1000 + 5 * np.sin(2 * rows[:, 0]) + rng.normal(size=600)
    weight = rng.choice([0.5, 1.0, 3.0], 600)
    columns = {f"x{j}": rows[:, j] for j in range(3)} | {"y": y, "w": weight}
    pq.write_table(pa.table(columns), folder / "t.parquet", row_group_size=70)
    return folder, rows, y, weight


BATCHES = {"batch_size": 100, "n_inducing": 8, "max_epochs": 4}


def test_a_source_is_the_table_in_memory(files):
    """The same batches where rows have numbers; the same bound where all rows are seen."""
    folder, rows, y, weight = files
    inner = short("svi", **BATCHES).fit(rows, y)
    outer = short("svi", **BATCHES).fit(lambda: [(rows, y)])
    np.testing.assert_allclose(outer.predict(rows), inner.predict(rows), rtol=1e-9)
    inner = short("vi", n_inducing=8).fit(rows, y, sample_weight=weight)
    outer = short("vi", n_inducing=8).fit(folder / "t.parquet", target="y", weight="w")
    assert outer.elbo_ == pytest.approx(inner.elbo_, rel=1e-9)
    assert outer.feature_names_in_.tolist() == ["x0", "x1", "x2"]
    np.testing.assert_allclose(
        outer.predict(folder / "t.parquet"), inner.predict(rows), rtol=1e-9
    )


def test_sources_that_cannot_be_used_say_what_to_do(files):
    folder, rows, y, _ = files
    for method, arguments, named, words in (
        ("exact", (folder / "t.parquet",), {"target": "y"}, "use method='vi' or 'svi'"),
        ("svi", (folder / "t.parquet",), {}, "target= is missing.*one of"),
        (
            "svi",
            (lambda: [(rows, np.where(y > 1000, np.nan, y))],),
            {},
            r"batch 0\): Input y contains NaN",
        ),
        ("svi", (lambda: [(rows, y.astype(str))],), {}, "must contain numbers"),
        ("svi", (lambda: [(rows, y[:-1])],), {}, "target per row"),
        ("svi", (rows, y), {"target": "y"}, "has no meaning for a table in memory"),
    ):
        with pytest.raises((BadInput, BadOption), match=words):
            short(method).fit(*arguments, **named)
    with pytest.raises(BadOption, match="inducing point"):
        short("vi", inducing=None).fit(folder / "t.parquet", target="y")


@pytest.mark.parametrize("method", ["exact", slow("vi")])
def test_two_standard_deviations_cover_95_percent_of_new_targets_and_the_noise_is_in_them(
    method,
):
    X, y = load_diabetes(return_X_y=True)
    gp = GPRegressor(method, n_inducing=20, random_state=0).fit(X[::2], y[::2])
    new = X[1::2]
    truth = y[1::2]
    mean, std = gp.predict(new, return_std=True)
    latent = gp.predict(new, return_std=True, noise=False)[1]
    np.testing.assert_allclose(std**2, latent**2 + gp.noise_, rtol=1e-9)
    np.testing.assert_allclose(
        np.diag(gp.predict(new, return_cov=True)[1]), std**2, rtol=1e-6
    )
    assert 0.92 < np.mean(np.abs(truth - mean) <= 2 * std) < 0.98
    assert np.mean(np.abs(truth - mean) <= 2 * latent) < 0.6
    low, high = gp.predict_interval(new, coverage=0.8)
    wide = gp._result.spread.at(new, (mean - y[::2].mean()) / y[::2].std())
    expected = 2 * gp.estimate_.find_half_width(0.8) * wide * std
    np.testing.assert_allclose(high - low, expected)
    assert 0.74 < np.mean((low <= truth) & (truth <= high)) < 0.88
    for coverage in (0, 1, 95, "0.9"):
        with pytest.raises(BadOption, match="coverage="):
            gp.predict_interval(new, coverage=coverage)


def test_targets_far_from_zero_that_are_not_normalised_are_told():
    """Such a fit explains nothing, and its warnings spoke of the jitter."""
    X = np.random.default_rng(0).normal(size=(30, 1))
    gp = GPRegressor(normalize_y=False, max_epochs=2)
    with pytest.warns(UserWarning, match=r"1e.07.*normalize_y=True"):
        gp.fit(X, X[:, 0] + 1e7)
