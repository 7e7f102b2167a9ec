"""Every registered likelihood goes through fit, predict, save, load and ONNX, and so
does one of the user's own.
"""

import math

import numpy as np
import pytest
import torch

import cavity
from cavity import BadFile, BadOption, GPClassifier
from cavity.common.namespaces import namespace
from cavity.engine.likelihoods.normal_tails import hazard, log_ndtr
from cavity.errors import CavityError
from cavity.likelihoods import (
    LIKELIHOODS,
    Gaussian,
    Likelihood,
    Logistic,
    LogisticPoint,
    Moments,
    Ordinal,
    Softmax,
)
from cavity.methods import EP, SEP, VI, Laplace, PowerEP
from registered import CLASSIFIERS, assert_same_elsewhere, make_likelihood
from support import toy


def method_for(likelihood: Likelihood) -> object:
    """EP where the likelihood has moments, Laplace where these are at a point,
    variational inference otherwise.
    """
    if isinstance(likelihood, LogisticPoint):
        return Laplace()
    return (EP if type(likelihood).moments is not Likelihood.moments else VI)(
        likelihood=likelihood
    )


def fit(
    method: object, classes: int, **options: object
) -> tuple[GPClassifier, np.ndarray]:
    X, y = toy(60, classes, 3)
    return GPClassifier(
        method, n_inducing=6, max_epochs=3, random_state=0, **options
    ).fit(X, y), X


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_fit_predict_save_load_and_onnx(name, classes, tmp_path):
    likelihood = make_likelihood(CLASSIFIERS[name], epsilon=0.1)
    if likelihood.two_classes and classes > 2:
        with pytest.raises(BadOption, match="two classes"):
            fit(EP(likelihood=likelihood), classes)
        return
    if isinstance(likelihood, Ordinal):
        clf, X = fit("ep", classes, order=range(classes))
    else:
        clf, X = fit(method_for(likelihood), classes)
    P = clf.predict_proba(X)
    assert P.shape == (60, classes)
    np.testing.assert_allclose(P.sum(1), 1, atol=1e-12)
    if not isinstance(
        likelihood, Softmax | Logistic
    ):  # which split no entropy with noise on f
        assert np.isfinite(clf.predict_uncertainty(X).total).all()
    assert_same_elsewhere(clf, X, tmp_path)


def test_the_object_of_the_user_stays_as_it_is():
    likelihood = LIKELIHOODS["robust-max"](epsilon=0.1, learn=True)
    before = likelihood.get_params()
    clf, _ = fit(EP(likelihood=likelihood), 3)
    assert likelihood.get_params() == before and likelihood.epsilon == pytest.approx(
        0.1
    )
    assert clf.epsilon_ != pytest.approx(0.1)


def test_a_likelihood_of_regression_is_refused_by_a_classifier():
    with pytest.raises(BadOption, match="regression"):
        fit(EP(likelihood=Gaussian(1.0)), 3)


# --- a likelihood of the user's own ----------------------------------------------------------------------
@LIKELIHOODS.register
class Mislabelled(Likelihood):
    """Probit with a share of wrong labels, for two classes."""

    two_classes = True
    n_classes = 2
    tempers = False

    def __init__(self, share: float = 0.05) -> None:
        self.share = share

    def moments(self, f, y, exponent):
        sign, scale = (2 * y - 1)[:, None].to(f.mean.dtype), f.var.rsqrt()
        alpha = sign * f.mean * scale
        log_right = math.log1p(-self.share) + log_ndtr(alpha)
        value = torch.logaddexp(
            log_right, torch.full_like(alpha, math.log(self.share / 2))
        )
        slope = (log_right - value).exp() * hazard(alpha)
        dv = -0.5 * slope * alpha * scale**2
        return Moments(value[:, 0], sign * slope * scale, dv, dv)

    def log_probability(self, mean, var):
        xp = namespace(mean)
        p = xp.exp(LIKELIHOODS["BinaryProbit"]().log_probability(mean, var))
        return xp.log(p * (1 - self.share) + self.share / 2)


@pytest.mark.parametrize("method", [EP, SEP])
def test_a_likelihood_of_one_s_own_goes_the_same_way(method, tmp_path):
    clf, X = fit(method(likelihood=Mislabelled(0.1)), 2)
    assert clf.predict_proba(X).min() > 0.05 - 1e-9
    assert_same_elsewhere(clf, X, tmp_path)
    assert cavity.load(tmp_path / "m.cavity").method.likelihood.share == 0.1


def test_it_equals_the_library_s_own_with_the_same_formula():
    """The robust likelihood of two classes, written a second time."""
    (mine, X), (ours, _) = (
        fit(EP(likelihood=likelihood), 2)
        for likelihood in (Mislabelled(0.1), LIKELIHOODS["RobustBinary"](0.1))
    )
    np.testing.assert_allclose(
        mine.predict_proba(X), ours.predict_proba(X), rtol=0, atol=1e-8
    )


def test_a_power_needs_exponents():
    """Without them the engine would run plain EP and call it power EP."""
    with pytest.raises(BadOption, match="Mislabelled"):
        fit(PowerEP(likelihood=Mislabelled()), 2)


def test_an_unregistered_likelihood_fits_but_is_not_saved(tmp_path):
    class Unregistered(Mislabelled):
        pass

    clf, X = fit(EP(likelihood=Unregistered(0.1)), 2)
    assert clf.predict_proba(X).shape == (60, 2)
    with pytest.raises(CavityError, match="Unregistered"):
        clf.save(tmp_path / "model.cavity")


def test_a_file_with_an_unknown_likelihood_names_it(tmp_path, monkeypatch):
    clf, _ = fit(EP(likelihood=Mislabelled(0.1)), 2)
    clf.save(tmp_path / "model.cavity")
    monkeypatch.delitem(LIKELIHOODS._classes, "Mislabelled")
    with pytest.raises(BadFile, match="Mislabelled"):
        cavity.load(tmp_path / "model.cavity")
