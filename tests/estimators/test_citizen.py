"""A citizen of scikit-learn: pipelines, searches, routing, subclasses, frames, labels
of any kind.
"""

import pickle
from dataclasses import dataclass

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.fixes import parse_version

from cavity import BadOption, GPClassifier, GPRegressor, load
from cavity.fitting.options import nest
from cavity.kernels import RBF

NAMES = ["height", "weight", "age"]


def model(method="ep", **options):
    return GPClassifier(
        method,
        **nest(
            **{"n_inducing": 8, "max_epochs": 5, "tol": 0.01, "random_state": 0}
            | options
        ),
    )


# ---------------------------------------------------------------- machinery
@pytest.mark.skipif(
    parse_version(sklearn.__version__) < parse_version("1.8"),
    reason="older cross_validate does not route weights to the score of a pipeline",
)
def test_sample_weight_is_routed_through_a_pipeline(three):
    X, y, _ = three
    w = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    cv = StratifiedKFold(3)
    with sklearn.config_context(enable_metadata_routing=True):
        gp = (
            model()
            .set_fit_request(sample_weight=True)
            .set_score_request(sample_weight=True)
        )
        pipe = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), gp)
        scores = cross_validate(pipe, X, y, cv=cv, params={"sample_weight": w})[
            "test_score"
        ]
    for score, (train, test) in zip(scores, cv.split(X, y), strict=True):
        alone = make_pipeline(StandardScaler(), model())
        alone.fit(X[train], y[train], gpclassifier__sample_weight=w[train])
        assert score == alone.score(X[test], y[test], sample_weight=w[test])
    plain = cross_validate(make_pipeline(StandardScaler(), model()), X, y, cv=cv)[
        "test_score"
    ]
    assert (plain != scores).any()


def test_set_output_hands_frames_to_the_classifier(three):
    X, y, new = three
    frame = pd.DataFrame(X, columns=NAMES)
    pipe = (
        make_pipeline(StandardScaler(), model())
        .set_output(transform="pandas")
        .fit(frame, y)
    )
    assert pipe[-1].feature_names_in_.tolist() == NAMES
    plain = make_pipeline(StandardScaler(), model()).fit(X, y)
    p = pipe.predict_proba(pd.DataFrame(new, columns=NAMES))
    np.testing.assert_allclose(
        p, plain.predict_proba(new), atol=1e-10
    )  # the scaler sums frames in another order


def test_fit_leaves_its_arguments_alone(three):
    X, y, _ = three
    kernel, Z, w = RBF(), X[:5].copy(), np.ones(len(y))
    before = X.copy(), y.copy(), Z.copy(), w.copy()
    gp = model(kernel=kernel, inducing=Z).fit(X, y, sample_weight=w)
    for a, b in zip(before, (X, y, Z, w), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (
        gp.kernel is kernel
        and kernel.lengthscale is None
        and not list(kernel.parameters())
    )
    assert gp.kernel_ is not kernel and gp.kernel_.lengthscale.shape == (3, 3)


def test_a_learnt_kernel_starts_another_model(three):
    """`kernel_` is a kernel like any other: its attributes, in the user's units, say
    all.
    """
    X, y, new = three
    first = model(max_epochs=20).fit(X, y)
    options = {
        "learn": (),
        "noise": first.noise_,
        "inducing": first.inducing_points_,
        "max_epochs": 50,
    }
    again = model(kernel=first.kernel_, **options).fit(X, y)
    np.testing.assert_allclose(
        again.kernel_.lengthscale, first.kernel_.lengthscale, rtol=1e-12
    )
    np.testing.assert_array_equal(again.noise_, first.noise_)
    np.testing.assert_array_equal(again.inducing_points_, first.inducing_points_)
    written = RBF(first.kernel_.lengthscale, first.kernel_.variance)
    np.testing.assert_array_equal(
        model(kernel=written, **options).fit(X, y).predict_proba(new),
        again.predict_proba(new),
    )
    assert again.log_marginal_likelihood_ == pytest.approx(
        first.log_marginal_likelihood_, abs=0.2
    )


# ---------------------------------------------------------------- subclasses
class Renamed(GPClassifier):
    """All arguments of GPClassifier."""


class Small(GPClassifier):
    """Some arguments are fixed."""

    def __init__(self, n_inducing=8, random_state=0):
        super().__init__(
            "ep", n_inducing=n_inducing, max_epochs=5, random_state=random_state
        )


class SmallRegressor(GPRegressor):
    """Some arguments are fixed."""

    def __init__(self, n_inducing=8):
        super().__init__("vi", n_inducing=n_inducing, max_epochs=5, random_state=0)


@dataclass(eq=False, repr=False)
class Extended(GPClassifier):
    """One argument more."""

    note: str = "mine"


OPTIONS = {"n_inducing": 8, "max_epochs": 5, "random_state": 0}
SUBCLASSES = [
    (Renamed("ep", **OPTIONS), GPClassifier("ep", **OPTIONS)),
    (Small(), GPClassifier("ep", **OPTIONS)),
    (Extended("ep", **OPTIONS), GPClassifier("ep", **OPTIONS)),
    (SmallRegressor(), GPRegressor("vi", **OPTIONS)),
]


@pytest.mark.parametrize(
    ("own", "plain"), SUBCLASSES, ids=[type(own).__name__ for own, _ in SUBCLASSES]
)
def test_a_subclass_fits_as_the_class_with_its_arguments(own, plain, three, tmp_path):
    X, y, new = three
    expected = plain.fit(X, y).predict(new)
    fitted = clone(own).fit(X, y)
    np.testing.assert_array_equal(fitted.predict(new), expected)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(fitted)).predict(new), expected
    )

    fitted.save(tmp_path / "own.cavity")
    loaded = load(tmp_path / "own.cavity")
    np.testing.assert_array_equal(loaded.predict(new), expected)
    assert loaded.get_params(deep=False) == plain.get_params(deep=False)

    assert clone(own).set_params(n_inducing=5).fit(X, y).n_inducing == 5


# ---------------------------------------------------------------- frames
@pytest.mark.parametrize(
    "frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"]
)
def test_frames_are_arrays_with_names(three, frame):
    X, y, new = three
    make = lambda rows: frame(dict(zip(NAMES, rows.T, strict=True)))
    fitted, plain = model().fit(make(X), y), model().fit(X, y)
    assert fitted.feature_names_in_.tolist() == NAMES and not hasattr(
        plain, "feature_names_in_"
    )
    np.testing.assert_array_equal(
        fitted.predict_proba(make(new)), plain.predict_proba(new)
    )
    assert fitted.score(make(X), pd.Series(y)) == plain.score(X, y)


def test_kinds_of_numbers_and_layouts_are_one(three):
    X, y, new = three
    X, new = X.round(0), new.round(0)  # exact in every kind
    expected = model().fit(X, y).predict_proba(new)
    frozen = X.copy()
    frozen.flags.writeable = False
    for rows in (
        np.asfortranarray(X),
        X.astype(np.float32),
        X.astype(np.int64),
        X.tolist(),
        frozen,
    ):
        np.testing.assert_array_equal(model().fit(rows, y).predict_proba(new), expected)
    frame = pd.DataFrame(X, columns=NAMES).astype({"age": "Int64", "height": "float32"})
    fitted = model().fit(frame, y)
    np.testing.assert_array_equal(
        fitted.predict_proba(pd.DataFrame(new, columns=NAMES)), expected
    )


# ---------------------------------------------------------------- labels
WORDS = np.array(["maple", "ash", "oak"])
LABELS = {
    "strings": WORDS.__getitem__,
    "objects": WORDS.astype(object).__getitem__,
    "list": lambda y: WORDS[y].tolist(),
    "pandas": lambda y: pd.Series(WORDS[y], index=range(5, 65)),
    "categorical": lambda y: pd.Series(
        pd.Categorical(WORDS[y], categories=["oak", "elm", "ash", "maple"])
    ),
    "polars": lambda y: pl.Series(WORDS[y].tolist()),
    "polars enum": lambda y: pl.Series(
        WORDS[y].tolist(), dtype=pl.Enum(["oak", "elm", "ash", "maple"])
    ),
    "frame": lambda y: pd.DataFrame({"tree": WORDS[y]}),
}


@pytest.mark.filterwarnings("ignore:A column-vector y")
def test_names_of_classes_come_in_every_kind(three):
    """Sorted, without categories that no row has, and predicted as they came."""
    X, y, new = three
    plain = model().fit(X, np.array([1, 0, 2])[y])
    for kind, make in LABELS.items():
        fitted = model().fit(X, make(y))
        assert fitted.classes_.tolist() == ["ash", "maple", "oak"], kind
        np.testing.assert_array_equal(
            fitted.predict_proba(new), plain.predict_proba(new), err_msg=kind
        )
        assert (
            fitted.predict(new).tolist() == fitted.classes_[plain.predict(new)].tolist()
        ), kind


@pytest.mark.parametrize(
    "labels", [[False, True], [-1, 1], [0.0, 1.0], ["no", "yes"], [10**12, 10**12 + 1]]
)
def test_two_classes_of_any_kind(make_table, labels):
    X, y, new = make_table(2)
    y = np.array(labels)[y]
    fitted = model().fit(X, y)
    assert fitted.classes_.tolist() == labels and fitted.classes_.dtype == y.dtype
    predicted = fitted.predict(new)
    assert predicted.dtype == y.dtype
    second = predicted == labels[1]
    assert 0 < second.sum() < len(new)
    np.testing.assert_array_equal(second, fitted.predict_proba(new)[:, 1] > 0.5)
    np.testing.assert_array_equal(second, fitted.predict_latent(new)[0] > 0)


@pytest.mark.parametrize("estimator", [GPClassifier(), GPRegressor()])
def test_options_of_an_object_that_is_not_given_are_refused_with_what_to_give(
    estimator,
):
    with pytest.raises(BadOption) as error:
        estimator.set_params(method__tol=1.0)
    assert "'method__tol'" in str(error.value) and "method=cavity.methods." in str(
        error.value
    )
    assert (
        clone(estimator)
        .set_params(kernel=RBF(), kernel__lengthscale=2.0)
        .kernel.lengthscale
        == 2.0
    )
