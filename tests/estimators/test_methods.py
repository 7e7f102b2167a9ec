"""What every method promises a user: shapes, attributes, laws of rows, weights, classes
and units, and refusals.
"""

import pickle
from functools import cache

import numpy as np
import pytest
from sklearn.base import clone

from cavity import BadOption, GPClassifier, Training
from cavity.fitting.options import nest
from cavity.fitting.options.library import method_names
from cavity.kernels import RBF
from cavity.likelihoods import RobustMax
from cavity.methods import EP
from support import classifier, slow

pytestmark = pytest.mark.filterwarnings("ignore:.*were repaired:RuntimeWarning")

LEARN = ("kernel", "noise", "inducing")
METHODS = {
    "ep": ("ep", {}),
    "sep": ("sep", {}),
    "rep own": ("rep", {}),
    "rep tied": ("rep", {"sites": "tied"}),
    "rep epsilon": ("rep", {"learn": (*LEARN, "epsilon"), "epsilon": 0.05}),
    "pep": ("pep", {}),
    "gfitc": ("gfitc", {}),
    "vi natural": ("vi", {"likelihood": "robust-max"}),
    "vi softmax": ("vi", {"likelihood": "softmax"}),
    "vi gradient": ("vi", {"q_update": "gradient"}),
    "laplace": ("laplace", {}),
}
FIXED = [
    name for name in METHODS if name != "rep epsilon"
]  # with learn=() it is "rep own"
WITH_BATCHES = [name for name in METHODS if name not in ("gfitc", "laplace")]
CLASSES = [2, 3]

WIDER = ("rep tied", "rep epsilon", "pep")  # what they add is in laws of every method


def widen(names):
    return pytest.mark.parametrize(
        "name", [slow(name) if name in WIDER else name for name in names]
    )


every = pytest.mark.parametrize("name", METHODS)
each_count = pytest.mark.parametrize("C", CLASSES)


@cache
def table(C, rows=18):
    """Rows, overlapping labels and rows to predict; nobody may write into them."""
    rng = np.random.default_rng(C)
    y = np.arange(rows) % C
    X = (rng.normal(scale=1.2, size=(C, 2))[y] + rng.normal(size=(rows, 2))) * [
        1.0,
        5.0,
    ]
    new = 2 * rng.normal(size=(9, 2)) * [1.0, 5.0]
    for part in (X, y, new):
        part.flags.writeable = False
    return X, y, new


def model(name, **options):
    method, own = METHODS[name]
    short = {
        "n_inducing": 4,
        "max_epochs": 2,
        "tol": 0.1,
        "random_state": 0,
        "device": "cpu",
    }
    return classifier(method, **short | own | options)


@cache
def fitted(name, C):
    """One fit that many tests look at, and none changes."""
    X, y, _ = table(C)
    return model(name).fit(X, y)


def assert_same(one, other, new, tol):
    """The two models are one: latent values, probabilities, evidence."""
    for a, b in zip(one.predict_latent(new), other.predict_latent(new), strict=True):
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol)
    np.testing.assert_allclose(
        one.predict_proba(new), other.predict_proba(new), rtol=0, atol=tol
    )
    assert one.log_marginal_likelihood_ == pytest.approx(
        other.log_marginal_likelihood_, rel=tol
    )


# ---------------------------------------------------------------- what a fit is
@each_count
@every
def test_probabilities_are_probabilities(name, C):
    _, y, new = table(C)
    gp = fitted(name, C)
    p, log_p = gp.predict_proba(new), gp.predict_log_proba(new)
    assert p.shape == log_p.shape == (len(new), C)
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(np.exp(log_p), p, rtol=1e-12)
    np.testing.assert_array_equal(gp.predict(new), gp.classes_[p.argmax(1)])
    assert gp.predict(new).dtype == y.dtype
    for part in gp.predict_latent(new):
        assert part.shape == ((len(new),) if C == 2 else (len(new), C))
        assert np.isfinite(part).all()


@each_count
@every
def test_attributes_are_where_they_belong(name, C):
    gp = fitted(name, C)
    method, options = METHODS[name]
    assert hasattr(gp, "elbo_") == (method == "vi")
    assert hasattr(gp, "epsilon_") == (
        method == "rep" or options.get("likelihood") == "robust-max"
    )
    if method == "vi":
        assert gp.elbo_ == gp.log_marginal_likelihood_
    if name == "rep epsilon":
        assert (
            type(gp.epsilon_) is float and 0 < gp.epsilon_ < 1 and gp.epsilon_ != 0.05
        )
    elif hasattr(gp, "epsilon_"):
        assert gp.epsilon_ == 1e-3
    assert (
        type(gp.log_marginal_likelihood_) is float and gp.log_marginal_likelihood_ < 0
    )
    assert gp.n_epochs_ == len(gp.history_) <= 2


def test_a_share_of_wrong_labels_is_found():
    """Two plain clusters and a function that could bend around each row, a tenth of the
    labels turned: ε rises to explain them.
    """
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    X = 6.0 * y[:, None] + rng.normal(size=(60, 2))
    wrong = np.where(np.arange(60) % 10 == 3, 1 - y, y)
    options = {
        "kernel": RBF(6.0, 200.0),
        "n_inducing": 20,
        "learn": ("epsilon",),
        "epsilon": 2e-3,
        "tol": 0,
    }
    start, end = (
        model("rep epsilon", **options, max_epochs=epochs, learning_rate=0.1).fit(
            X, wrong
        )
        for epochs in (1, 100)
    )
    assert start.epsilon_ < 4e-3 and 0.05 < end.epsilon_ < 0.3
    assert end.log_marginal_likelihood_ > start.log_marginal_likelihood_ + 1


@each_count
@every
def test_a_pickle_predicts_the_same_bits(name, C):
    new = table(C)[2]
    gp = fitted(name, C)
    again = pickle.loads(pickle.dumps(gp))
    np.testing.assert_array_equal(
        again.predict_log_proba(new), gp.predict_log_proba(new)
    )
    assert vars(again).keys() == vars(gp).keys()


@each_count
@widen(METHODS)
def test_a_clone_with_the_same_seed_is_the_same_bits(name, C):
    X, y, new = table(C)
    gp = fitted(name, C)
    twin = clone(gp)
    assert not hasattr(twin, "classes_") and twin.get_params() == gp.get_params()
    twin.fit(X, y)
    np.testing.assert_array_equal(
        twin.predict_log_proba(new), gp.predict_log_proba(new)
    )
    assert twin.log_marginal_likelihood_ == gp.log_marginal_likelihood_


@pytest.mark.parametrize("name", FIXED)
def test_a_warm_start_from_a_settled_fit_settles_at_once(name):
    X, y, new = table(2)
    gp = model(name, learn=(), warm_start=True, max_epochs=500, tol=1e-4).fit(X, y)
    before = gp.n_epochs_, gp.predict_proba(new)
    gp.fit(X, y)
    # gradient steps are judged over ten epochs
    least = 11 if name == "vi gradient" else 3
    assert gp.n_epochs_ <= least < before[0]
    np.testing.assert_allclose(gp.predict_proba(new), before[1], atol=1e-3)


@every
def test_a_warm_start_goes_on_from_the_last_parameters(name):
    """A second short fit is where a cold one of the same length is not."""
    X, y, _ = table(2)
    gp = model(name, warm_start=True).fit(X, y)
    first, at_end = gp.log_marginal_likelihood_, gp.kernel_.lengthscale
    gp.fit(X, y)
    assert gp.log_marginal_likelihood_ > first
    assert (gp.kernel_.lengthscale != at_end).all()


@each_count
def test_a_warm_start_may_change_the_method(C):
    X, y, new = table(C)
    gp = model("ep", warm_start=True).fit(X, y)
    for name in ["vi natural", "rep own", "gfitc", "rep epsilon", "pep", "vi softmax"]:
        other = model(name)
        gp.set_params(method=other.method, training=other.training).fit(X, y)
        np.testing.assert_allclose(gp.predict_proba(new).sum(1), 1, atol=1e-12)


# ---------------------------------------------------------------- what must not matter
@each_count
@widen(METHODS)
def test_the_order_of_rows_does_not_matter(name, C):
    X, y, new = table(C)
    order = np.random.default_rng(1).permutation(len(y))
    assert_same(model(name).fit(X[order], y[order]), fitted(name, C), new, 1e-8)


@each_count
@widen(METHODS)
def test_relabelling_classes_permutes_probabilities(name, C):
    X, y, new = table(C)
    order = np.roll(np.arange(C), 1)  # class c is called order[c]
    here, there = (
        model(name, inducing=X[:5]).fit(X, labels) for labels in (y, order[y])
    )
    np.testing.assert_allclose(
        there.predict_proba(new)[:, order], here.predict_proba(new), rtol=0, atol=1e-10
    )
    if C > 2:
        np.testing.assert_allclose(there.noise_[order], here.noise_, rtol=1e-9)
    assert there.log_marginal_likelihood_ == pytest.approx(
        here.log_marginal_likelihood_, rel=1e-8
    )


@each_count
@widen(METHODS)
def test_a_column_times_a_power_of_two_changes_no_bit(name, C):
    X, y, new = table(C)
    unit = np.array([1024.0, 2.0**-10])
    gp, there = fitted(name, C), model(name).fit(X * unit, y)
    np.testing.assert_array_equal(
        there.predict_log_proba(new * unit), gp.predict_log_proba(new)
    )
    np.testing.assert_array_equal(there.inducing_points_, gp.inducing_points_ * unit)
    np.testing.assert_array_equal(
        there.kernel_.lengthscale, gp.kernel_.lengthscale * unit
    )
    np.testing.assert_array_equal(there.feature_relevance_, gp.feature_relevance_)
    assert there.log_marginal_likelihood_ == gp.log_marginal_likelihood_


@each_count
@every
def test_batching_rows_at_predict_changes_nothing(name, C):
    """Also when they are as many as the classes."""
    new = table(C)[2]
    gp = fitted(name, C)
    whole = gp.predict_log_proba(new)
    for size in (1, C):
        parts = [
            gp.predict_log_proba(new[i : i + size]) for i in range(0, len(new), size)
        ]
        np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-10, atol=1e-10)


@widen(FIXED)
def test_projecting_rows_in_pieces_changes_nothing(name, monkeypatch):
    X, y, new = table(3)
    monkeypatch.setattr("cavity.fitting.options.policy.LEAST_M", 4)
    monkeypatch.setattr(
        "cavity.fitting.options.policy.BATCH_BYTES", 10 * 3 * 4 * 8
    )  # pieces of 10 rows
    assert_same(model(name).fit(X, y), fitted(name, 3), new, 1e-8)


@widen(METHODS)
def test_single_precision_is_near(name):
    X, y, new = table(3)
    single = model(name, dtype="float32", jitter=1e-4).fit(X, y)
    p = single.predict_proba(new)
    assert p.dtype == np.float64
    np.testing.assert_allclose(
        p, model(name, jitter=1e-4).fit(X, y).predict_proba(new), atol=5e-3
    )


@each_count
@widen(WITH_BATCHES)
def test_mini_batches_fit(name, C):
    """The same seed gives the same bits, another one another fit."""
    X, y, new = table(C)
    fit = lambda seed: model(
        name, batch_size=9, max_epochs=1, random_state=seed, inducing=X[:4]
    ).fit(X, y)
    p = fit(0).predict_proba(new)
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-12)
    np.testing.assert_array_equal(fit(0).predict_proba(new), p)
    assert (fit(1).predict_proba(new) != p).any()


# ---------------------------------------------------------------- weights
@each_count
@widen(FIXED)
def test_whole_weights_are_repetitions(name, C):
    X, y, new = table(C)
    w = np.random.default_rng(2).integers(0, 4, len(y))
    options = {"learn": (), "inducing": X[:4], "max_epochs": 3, "tol": 0}
    weighted = model(name, **options).fit(X, y, sample_weight=w)
    assert_same(
        weighted,
        model(name, **options).fit(X.repeat(w, axis=0), y.repeat(w)),
        new,
        1e-10,
    )


@each_count
@widen(METHODS)
def test_weight_zero_is_absence(name, C):
    """To the bit, and wherever the absent rows lie."""
    X, y, new = table(C)
    wild = (
        np.concatenate([X, 1e3 * X[:3]]),
        np.r_[y, 7, 7, 7],
        np.r_[np.ones(len(y)), np.zeros(3)],
    )
    gp = model(name).fit(*wild[:2], sample_weight=wild[2])
    assert gp.classes_.tolist() == list(range(C))
    np.testing.assert_array_equal(
        gp.predict_log_proba(new), fitted(name, C).predict_log_proba(new)
    )


SPANS = [(2, (1e-4, 1e-4)), (2, (1e3, 1e3)), (3, (1e-4, 1e3))]


@pytest.mark.parametrize(("C", "span"), SPANS, ids=str)
@widen(METHODS)
def test_weights_from_tiny_to_huge_fit(name, C, span):
    X, y, new = table(C)
    w = np.random.default_rng(0).permutation(np.geomspace(*span, len(y)))
    gp = model(name, max_epochs=1).fit(X, y, sample_weight=w)
    np.testing.assert_allclose(gp.predict_proba(new).sum(1), 1, atol=1e-12)
    mean, var = gp.predict_latent(new)
    assert np.isfinite(mean).all() and (var > 0).all()
    assert np.isfinite(gp.log_marginal_likelihood_)


# ---------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    "kind",
    [*method_names("classification").values(), *method_names("regression").values()],
)
def test_a_method_takes_its_own_options_and_no_others(kind):
    assert kind().get_params() == {
        name: getattr(kind(), name) for name in kind.parameter_names()
    }
    with pytest.raises(TypeError, match=r"speed|no arguments"):
        kind(speed=1)
    with pytest.raises(BadOption, match="'speed'"):
        kind().set_params(speed=1)


@pytest.mark.parametrize("method", ["auto", "ep", "sep", "pep", "gfitc", "laplace"])
@pytest.mark.parametrize("learn", [("epsilon",), "epsilon"])
def test_epsilon_is_learnt_only_by_methods_that_have_one(method, learn):
    X, y, _ = table(3)
    with pytest.raises(BadOption, match="method='rep'"):
        GPClassifier(method, training=Training(learn=learn)).fit(X, y)


@pytest.mark.parametrize("kind", method_names("classification").values())
def test_methods_are_cloned_and_searched_like_kernels(kind):
    gp = clone(GPClassifier(kind()))
    assert repr(gp.method) == repr(kind()) and gp.get_params()["method"] is gp.method
    for name, value in kind().get_params().items():
        gp.set_params(**{f"method__{name}": value})
        assert gp.get_params()[f"method__{name}"] == value


@each_count
def test_a_likelihood_by_name_is_that_likelihood(C):
    X, y, new = table(C)
    robust = model("rep own").fit(X, y).predict_proba(new)
    short = {
        "n_inducing": 4,
        "max_epochs": 2,
        "tol": 0.1,
        "random_state": 0,
        "device": "cpu",
    }
    for likelihood in ("robust-max", RobustMax()):
        gp = GPClassifier(EP(likelihood=likelihood), **nest(**short)).fit(X, y)
        np.testing.assert_array_equal(gp.predict_proba(new), robust)
    with pytest.raises(BadOption, match="'robust-max'"):
        GPClassifier(EP(likelihood="logit")).fit(X, y)


CONFLICTS = [
    (
        "vi",
        {"likelihood": "softmax", "epsilon": 0.1},
        ["epsilon=0.1", "likelihood='robust-max'"],
    ),
    (
        "vi",
        {"likelihood": "softmax", "learn": ("epsilon",)},
        ["has no epsilon", "likelihood='robust-max'"],
    ),
    (
        "gfitc",
        {"batch_size": 5},
        ["batch_size=5", "batch_size=None", "'ep', 'sep', 'pep', 'rep' or 'vi'"],
    ),
    (
        "rep",
        {"epsilon": 0, "learn": ("epsilon",)},
        ["epsilon=0", "positive", "out of learn"],
    ),
    (
        "vi",
        {"epsilon": 0},
        ["epsilon=0", "positive", "method='rep'", "likelihood='softmax'"],
    ),
    ("rep", {"epsilon": 1}, ["epsilon=1", "below 1"]),
    ("vi", {"epsilon": 1.0}, ["epsilon=1", "below 1"]),
    ("rep", {"epsilon": -0.1}, ["epsilon=-0.1", "at least 0"]),
    ("rep", {"epsilon": 1.5}, ["epsilon=1.5", "at most 1"]),
    ("rep", {"epsilon": "few"}, ["epsilon='few'", "number"]),
    ("rep", {"epsilon": np.nan}, ["epsilon=nan", "number"]),
    ("pep", {"power": 0}, ["power=0", "above 0 and at most 1"]),
    ("pep", {"power": 1.5}, ["power=1.5", "above 0 and at most 1"]),
    ("pep", {"power": None}, ["power=None", "number"]),
    ("rep", {"sites": "shared"}, ["sites='shared'", "'own', 'tied'"]),
    (
        "vi",
        {"likelihood": "logit"},
        ["likelihood='logit'", "'probit', 'robust-max', 'softmax'"],
    ),
    ("vi", {"schedule": "inner-exact"}, ["inner-exact", "'ep', 'rep' or 'pep'"]),
    ("vi", {"q_update": "newton"}, ["q_update='newton'", "'natural', 'gradient'"]),
    ("vi", {"q_update": "gradient", "damping": 0.5}, ["damping=0.5", "'natural'"]),
    ("vi", {"q_update": "gradient", "schedule": "outer"}, ["'outer'", "'natural'"]),
    ("gfitc", {"schedule": "inner-exact"}, ["inner-exact", "'ep', 'rep' or 'pep'"]),
    (
        "rep",
        {"sites": "tied", "schedule": "inner-exact"},
        ["inner-exact", "'ep', 'rep' or 'pep'"],
    ),
]


@pytest.mark.parametrize(("method", "options", "words"), CONFLICTS, ids=str)
def test_a_value_that_makes_no_sense_is_refused_with_what_does(method, options, words):
    X, y, _ = table(3)
    with pytest.raises(BadOption) as error:
        classifier(method, **options).fit(X, y)
    for word in words:
        assert word in str(error.value), f"{word!r} is not in {error.value}"


ALLOWED = [
    ("rep", {"epsilon": 0}),
    ("pep", {"power": 1}),
    ("vi", {"likelihood": "robust-max"}),
    ("vi", {"likelihood": "robust-max", "learn": ("epsilon",)}),
    ("vi", {"epsilon": 0.01, "learn": ("epsilon",)}),
    ("vi", {"schedule": "outer"}),
    ("rep", {"schedule": "inner-exact"}),
    ("pep", {"schedule": "inner-exact"}),
    ("gfitc", {"optimizer": "adam"}),
    ("gfitc", {"batch_size": 100}),  # more than there are rows: all of them
    ("vi", {"optimizer": "lbfgs"}),
    ("vi", {"q_update": "gradient", "optimizer": "adam"}),
    ("vi", {"q_update": "gradient", "learn": ()}),
]


@pytest.mark.parametrize(("method", "options"), ALLOWED, ids=str)
def test_a_value_that_makes_sense_is_taken(method, options):
    X, y, new = table(2)
    short = {"n_inducing": 4, "max_epochs": 2, "tol": 0.1, "random_state": 0}
    gp = classifier(method, **short | options).fit(X, y)
    np.testing.assert_allclose(gp.predict_proba(new).sum(1), 1, atol=1e-12)
