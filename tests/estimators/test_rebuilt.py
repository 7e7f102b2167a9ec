"""Laws that the rebuilt floors must keep: what is checked when, what a fit fixes, and
what stays out of its way.
"""

import numpy as np
import pytest

from cavity import BadOption, GPClassifier, GPRegressor
from cavity.fitting.options import nest
from cavity.likelihoods import RobustMax
from cavity.methods import EP, PowerEP, SubsetOfRegressors
from support import without_warnings

QUICK = dict(n_inducing=5, max_epochs=2, random_state=0)


class Unread:
    """A source that must not be read."""

    names, n_rows = None, 10

    def pieces(self, size):
        raise AssertionError("a row was read")


def quietly(call, *arguments, **options):
    with without_warnings():
        return call(*arguments, **options)


def line(n=20):
    x = np.linspace(0, 1, n)[:, None]
    return x, np.sin(5 * x[:, 0])


# --- options first ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(method=PowerEP(likelihood="robust-max")), "fractional powers"),
        (
            dict(
                method=EP(likelihood=RobustMax(epsilon=0.0)),
                learn=("kernel", "epsilon"),
            ),
            "epsilon=0 cannot",
        ),
        (dict(validation_fraction=0.2), "table in memory"),
        (dict(class_weight={0: "heavy"}), "class_weight"),
        (dict(checkpoint=5), "checkpoint=5"),
        (dict(verbose="loud"), "verbose='loud'"),
    ],
    ids=str,
)
def test_a_wrong_option_is_refused_before_a_source_is_read(options, words):
    with pytest.raises(BadOption, match=words):
        GPClassifier(**nest(**options)).fit(Unread())


# --- partial_fit is there or not, whatever else is wrong --------------------------------------------------
@pytest.mark.parametrize(
    "wrong", [{}, {"n_inducing": -1}, {"checkpoint": 5}, {"device": "moon"}], ids=str
)
def test_only_the_method_decides_whether_partial_fit_exists(wrong):
    assert not hasattr(GPClassifier("ep", **nest(**wrong)), "partial_fit")
    assert hasattr(GPClassifier("sep", **nest(**wrong)), "partial_fit")
    assert not hasattr(
        GPClassifier("sep", **nest(optimizer="lbfgs", **wrong)), "partial_fit"
    )


# --- names of methods -------------------------------------------------------------------------------------
# --- what a fit fixes -------------------------------------------------------------------------------------
def test_predictions_of_a_regressor_belong_to_its_fit_not_to_its_arguments():
    x, y = line()
    model = quietly(GPRegressor(SubsetOfRegressors(), **nest(**QUICK)).fit, x, y)
    before = model.predict(x + 3, return_std=True)[1]
    assert np.array_equal(
        model.set_params(method="fitc").predict(x + 3, return_std=True)[1], before
    )
    assert np.array_equal(
        model.set_params(method="nonsense").predict(x + 3, return_std=True)[1], before
    )
