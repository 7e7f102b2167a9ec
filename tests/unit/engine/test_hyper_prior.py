"""The priors of hyper-parameters, against explicit matrices."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from cavity import GPClassifier, Training, load
from cavity.engine.kernels.hyper_prior import HyperPrior, Spread, pool
from cavity.fitting.options import nest
from cavity.kernels import RBF, Constant, Linear, Sum
from support import ALONE

deviations = st.floats(0.1, 3.0)
spreads = st.builds(Spread, deviations, deviations, deviations, deviations)


def covariance(C: int, D: int, spread: Spread) -> np.ndarray:
    """all + class_c + column_d + own_cd, entry by entry."""
    classes, columns = (index.ravel() for index in np.indices((C, D)))
    same_class = classes[:, None] == classes
    same_column = columns[:, None] == columns
    return (
        spread.all**2
        + spread.each_class**2 * same_class
        + spread.column**2 * same_column
        + spread.own**2 * (same_class & same_column)
    )


@given(
    st.integers(1, 5),
    st.integers(1, 6),
    spreads,
    st.integers(0, 3),
    st.integers(0, 2**31),
)
def test_a_pooled_prior_is_the_normal_of_its_four_parts(C, D, spread, before, seed):
    rng = np.random.default_rng(seed)
    size = before + C * D + 2
    gap, mean = rng.standard_normal((2, size))
    precision = np.zeros(size)
    precision[before : before + C * D] = spread.own**-2
    prior = HyperPrior(
        torch.tensor(mean), torch.tensor(precision), (pool(before, (C, D), spread),)
    )
    theta = torch.tensor(mean + gap)
    inside = slice(before, before + C * D)
    normal = multivariate_normal(cov=covariance(C, D, spread), allow_singular=True)
    expected = normal.logpdf(gap[inside]) - normal.logpdf(np.zeros(C * D))
    assert float(prior.log_density(theta, prior.gradient(theta))) == pytest.approx(
        expected, rel=1e-8, abs=1e-8
    )
    slope = np.zeros(size)
    slope[inside] = -np.linalg.solve(covariance(C, D, spread), gap[inside])
    np.testing.assert_allclose(
        prior.gradient(theta).numpy(), slope, rtol=1e-7, atol=1e-8
    )


def three_classes(
    rows: int, columns: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(seed).standard_normal((rows, columns))
    return X, X[:, :3].argmax(1)


def test_auto_adds_a_linear_term_where_there_are_points_to_carry_it():
    X, y = three_classes(60, 5)
    few = {"max_epochs": 2, "random_state": 0, **ALONE}
    kernel = GPClassifier(**nest(n_inducing=10, **few)).fit(X, y).kernel_
    assert (
        isinstance(kernel, Sum)
        and isinstance(kernel.k1, RBF)
        and isinstance(kernel.k2, Linear)
    )
    assert isinstance(GPClassifier(**nest(n_inducing=9, **few)).fit(X, y).kernel_, RBF)
    assert isinstance(
        GPClassifier("ep", **nest(n_inducing=10, **few)).fit(X, y).kernel_, RBF
    )
    assert isinstance(
        GPClassifier(**nest(kernel=RBF(), n_inducing=10, **few)).fit(X, y).kernel_, RBF
    )


def test_sums_and_products_read_as_they_are_written():
    assert (
        repr(RBF() + Linear())
        == "RBF(lengthscale=None, variance=1.0) + Linear(lengthscale=None, "
        "variance=1.0, fades=False)"
    )
    kernel = (Constant() + Constant(2.0)) * Constant(3.0)
    assert (
        repr(kernel)
        == "(Constant(variance=1.0) + Constant(variance=2.0)) * Constant(variance=3.0)"
    )
    assert eval(repr(kernel), {"Constant": Constant}).weight() == 9.0


def test_auto_is_ep_with_that_kernel_and_the_shared_prior():
    X, y = three_classes(60, 4)
    common = {"inducing": X[:10], "max_epochs": 15, "random_state": 0}
    common |= {
        "optimizer": "sign",
        "calibration": None,
    }  # "auto" would take L-BFGS here, and calibrate
    ours = GPClassifier(**nest(**common)).fit(X, y)
    spelt = GPClassifier(
        "ep", **nest(kernel=RBF() + Linear(), share="prior", **common)
    ).fit(X, y)
    np.testing.assert_allclose(
        ours.predict_proba(X), spelt.predict_proba(X), atol=1e-9
    )  # rows have another order
    apart = GPClassifier(**nest(share=None, **common)).fit(X, y)
    assert np.abs(apart.predict_proba(X) - ours.predict_proba(X)).max() > 1e-6


def test_a_shared_prior_draws_the_classes_together():
    X, y = three_classes(200, 3)
    common = {"kernel": RBF(), "n_inducing": 20, "max_epochs": 60, "random_state": 0}
    scatter = {
        share: np.log(
            GPClassifier("ep", **nest(share=share, **common))
            .fit(X, y)
            .kernel_.lengthscale
        )
        .std(0)
        .mean()
        for share in (None, "prior")
    }
    assert 0 < scatter["prior"] < scatter[None]


@pytest.mark.parametrize("method", ["auto", "sep"])
def test_a_pooled_model_is_saved_loaded_and_grows_as_before(method, tmp_path):
    X, y = three_classes(120, 4)
    clf = GPClassifier(
        method, training=Training(share="prior"), n_inducing=10, random_state=0
    )
    clf.partial_fit(X[:80], y[:80])
    clf.save(tmp_path / "model")
    np.testing.assert_array_equal(
        load(tmp_path / "model").predict_proba(X), clf.predict_proba(X)
    )
    again = pickle.loads(pickle.dumps(clf))
    for model in (clf, again):
        model.partial_fit(X[80:], y[80:])
    np.testing.assert_allclose(again.predict_proba(X), clf.predict_proba(X), atol=1e-12)
