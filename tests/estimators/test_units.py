"""What must not matter: units, offsets, names of classes, order of rows, how rows are
batched.
"""

import numpy as np
import pytest
import torch

from cavity import GPClassifier
from cavity.engine.inference.posterior import Normal
from cavity.fitting.options import nest
from cavity.kernels import Linear
from cavity.likelihoods import ProbitPairs


def model(method="ep", **options):
    return GPClassifier(
        method,
        **nest(**{"n_inducing": 10, "max_epochs": 5, "random_state": 0} | options),
    )


def latent(fitted, X):
    return np.stack(fitted.predict_latent(X))


def test_a_column_times_a_power_of_two_changes_no_bit_in_mini_batches(table, method):
    X, y, new = table
    unit = np.array([1024.0, 1.0, 2.0**-20])
    here, there = (
        model(method, batch_size=16, max_epochs=3).fit(X * u, y) for u in (1.0, unit)
    )
    np.testing.assert_array_equal(latent(there, new * unit), latent(here, new))
    np.testing.assert_array_equal(
        there.predict_log_proba(new * unit), here.predict_log_proba(new)
    )
    np.testing.assert_array_equal(there.inducing_points_, here.inducing_points_ * unit)
    np.testing.assert_array_equal(
        there.kernel_.lengthscale, here.kernel_.lengthscale * unit
    )
    np.testing.assert_array_equal(there.feature_relevance_, here.feature_relevance_)
    assert there.log_marginal_likelihood_ == here.log_marginal_likelihood_


@pytest.mark.parametrize("unit", [1000.0, np.array([1000.0, 1.0, 1e-3]), 3.7])
def test_any_other_unit_changes_nothing_but_rounding(table, method, unit):
    X, y, new = table
    here = model(method).fit(X, y)
    there = model(method).fit(X * unit, y)
    np.testing.assert_allclose(
        there.predict_proba(new * unit), here.predict_proba(new), atol=1e-9, rtol=0
    )


def test_an_offset_changes_little(table, method):
    """Distances are taken on centred columns: an offset of 10⁶ costs six digits of
    sixteen, not the fit.
    """
    X, y, new = table
    offset = np.array([1e6, -3e5, 0.0])
    here = model(method).fit(X, y)
    there = model(method).fit(X + offset, y)
    np.testing.assert_allclose(
        there.predict_proba(new + offset), here.predict_proba(new), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("classes", [5, 16, 17, 40])
def test_rows_with_few_rivals_do_not_notice_rows_with_many(classes):
    """Beyond 16 classes only those that can win are integrated: which ones must be each
    row's own affair.
    """
    rng = np.random.default_rng(0)
    size = np.repeat([0.01, 1.0, 30.0, 1.0, 300.0], 3)[
        :, None
    ]  # of the means, in standard deviations
    unequal = np.repeat([0.0, 0.0, 0.0, 2.0, 3.0], 3)[
        :, None
    ]  # of the variances, in logarithms
    f = Normal(
        torch.tensor(size * rng.normal(size=(15, classes))),
        torch.tensor(np.exp(unequal * rng.normal(size=(15, classes)))),
    )
    predict = ProbitPairs(classes).log_probability
    whole = predict(*f)
    each = torch.cat([predict(m[None], v[None]) for m, v in zip(*f, strict=True)])
    torch.testing.assert_close(each.exp(), whole.exp(), rtol=0, atol=1e-10)
    torch.testing.assert_close(each, whole, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("classes", [2, 3])
def test_logarithms_stay_finite_where_probabilities_underflow(make_table, classes):
    """Heavy rows pin a linear function down, so that far away a class is e⁻⁷⁴⁵ times
    less likely.
    """
    X, y, _ = make_table(classes, rows=45)
    options = {
        "learn": (),
        "noise": 1.0,
        "kernel": Linear(),
        "tol": 1e-6,
        "max_epochs": 500,
    }
    fitted = model(**options).fit(X, y, sample_weight=np.full(len(y), 1e3))
    far = 1e3 * X
    log_p = fitted.predict_log_proba(far)
    assert np.isfinite(log_p).all()
    assert log_p.min() < -745 and fitted.predict_proba(far).min() == 0.0


def test_score_is_the_accuracy_and_takes_weights(make_table):
    X, y, _ = make_table(3)
    fitted = model().fit(X, y)
    right = fitted.predict(X) == y
    assert 0.4 < right.mean() < 1 and fitted.score(X, y) == right.mean()
    weight = np.random.default_rng(3).random(len(y))
    assert fitted.score(X, y, sample_weight=weight) == pytest.approx(
        np.average(right, weights=weight)
    )
