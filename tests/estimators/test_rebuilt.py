"""Laws that the rebuilt floors must keep: what is checked when, what a fit fixes, and what stays out of its way."""

import os
import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from cavity import BadInput, BadOption, GPClassifier, GPRegressor, Training
from cavity.cli.settings import make_method
from cavity.explain import sampling
from cavity.likelihoods import RobustMax
from cavity.methods import EP, SVGP, PowerEP, SubsetOfRegressors
from cavity.options import nest
from cavity.options.library import METHODS, method_names
from cavity.report.model_card import describe_model
from cavity.rows.tables import GivenRows, read_table_of_fit
from support import toy

QUICK = dict(n_inducing=5, max_epochs=2, random_state=0)


class Unread:
    """A source that must not be read."""

    names, numbered, n_rows = None, True, 10

    def pieces(self, size):
        raise AssertionError("a row was read")


def quietly(call, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*arguments, **options)


def line(n=20):
    x = np.linspace(0, 1, n)[:, None]
    return x, np.sin(5 * x[:, 0])


# --- options first ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(method=PowerEP(likelihood="robust-max")), "fractional powers"),
        (dict(method=EP(likelihood=RobustMax(epsilon=0.0)), learn=("kernel", "epsilon")), "epsilon=0 cannot"),
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


@pytest.mark.parametrize("verbose", [None, True, False, 0])
def test_verbose_is_a_number_or_a_truth_value(verbose):
    X, y = toy(20, 2)
    assert quietly(GPClassifier(effort="fast", **nest(verbose=verbose, **QUICK)).fit, X, y).n_epochs_ > 0


def test_classes_that_all_weigh_nothing_are_refused():
    X, y = toy(20, 2)
    with pytest.raises(BadInput, match="weight 0"):
        GPClassifier(class_weight={0: 0, 1: 0}).fit(X, y)


# --- partial_fit is there or not, whatever else is wrong --------------------------------------------------


@pytest.mark.parametrize("wrong", [{}, {"n_inducing": -1}, {"checkpoint": 5}, {"device": "moon"}], ids=str)
def test_only_the_method_decides_whether_partial_fit_exists(wrong):
    assert not hasattr(GPClassifier("ep", **nest(**wrong)), "partial_fit")
    assert hasattr(GPClassifier("sep", **nest(**wrong)), "partial_fit")
    assert not hasattr(GPClassifier("sep", **nest(optimizer="lbfgs", **wrong)), "partial_fit")


def test_a_method_that_is_unknown_has_a_partial_fit_that_says_so():
    X, y = toy(20, 2)
    with pytest.raises(BadOption, match="'epp' is unknown"):
        GPClassifier("epp").partial_fit(X, y)


# --- names of methods -------------------------------------------------------------------------------------


def test_a_subclass_without_a_name_does_not_take_its_parent_s():
    class Nameless(EP):
        pass

    METHODS.register(Nameless)
    try:
        assert method_names("classification")["ep"] is EP
    finally:
        del METHODS._classes["Nameless"]


def test_a_table_of_the_settings_file_needs_a_name_that_is_text():
    with pytest.raises(BadOption, match="needs a name"):
        make_method({"name": ["rep"]})


# --- what a fit fixes -------------------------------------------------------------------------------------


def test_predictions_of_a_regressor_belong_to_its_fit_not_to_its_arguments():
    x, y = line()
    model = quietly(GPRegressor(SubsetOfRegressors(), **nest(**QUICK)).fit, x, y)
    before = model.predict(x + 3, return_std=True)[1]
    assert np.array_equal(model.set_params(method="fitc").predict(x + 3, return_std=True)[1], before)
    assert np.array_equal(model.set_params(method="nonsense").predict(x + 3, return_std=True)[1], before)


def test_a_class_weight_that_is_wrong_by_now_is_refused():
    X, y = toy(30, 2)
    model = quietly(GPClassifier(effort="fast", **nest(**QUICK)).fit, X, y)
    with pytest.raises(BadOption, match="class_weight='even'"):
        model.set_params(class_weight="even").diagnose(X, y)


@pytest.mark.parametrize(
    ("method", "words"),
    [("rep", "rep"), ("vi", "vi"), (PowerEP(power=0.3), "PowerEP(power=0.3, likelihood=None)")],
)
def test_a_report_names_every_method_with_its_options(method, words):
    X, y = toy(20, 2)
    facts = dict(describe_model(quietly(GPClassifier(method, **nest(**QUICK)).fit, X, y)))
    assert facts["Method"] == words


# --- sampling ---------------------------------------------------------------------------------------------


def test_a_free_q_has_no_target_in_regression_either():
    x, y = line()
    model = quietly(GPRegressor(SVGP(q_update="gradient"), **nest(**QUICK)).fit, x, y)
    with pytest.raises(BadOption, match="q_update='gradient'"):
        model.sample_hyperparameters(x, y)


@pytest.mark.parametrize(("jitter", "expected"), [(None, 1e-6), (1e-3, 1e-3)])
def test_a_classifier_is_sampled_with_the_jitter_of_float64(jitter, expected):
    X, y = toy(30, 2)
    model = quietly(GPClassifier("ep", **nest(dtype="float32", jitter=jitter, **QUICK)).fit, X, y)
    table = read_table_of_fit(GivenRows(X, y), None, model._features(), model.classes_)
    run = sampling.make_sampling_run(model._config(), model._fitted, table, "kernel")
    assert run.state.theta.dtype == torch.float64 and float(run.state.jitter) == expected


def test_the_exact_regressor_in_float64_has_its_own_jitter():
    config = GPRegressor(training=Training(dtype="float32"))._config()
    assert config.jitter == 1e-4 and config.in_float64().jitter == 1e-8
    assert GPRegressor(training=Training(dtype="float32", jitter=1e-3))._config().in_float64().jitter == 1e-3


@pytest.mark.slow
def test_warnings_of_a_sampler_point_at_its_caller():
    x, y = line()
    model = quietly(GPRegressor(**nest(**QUICK)).fit, x, y)
    with pytest.warns(ConvergenceWarning) as seen:
        model.sample_hyperparameters(x, y, n_samples=20, warmup=20, chains=2, random_state=0)
    mine = [w for w in seen if "effective draws" in str(w.message)]
    assert mine and os.path.basename(mine[0].filename) == os.path.basename(__file__)
