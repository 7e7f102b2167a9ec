"""Likelihoods of the library pass their checks; each forged one fails by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cavity import BadOption, GPClassifier
from cavity.errors import BadResult
from cavity.likelihoods import BinaryProbit, Likelihood, ProbitPairs, Softmax
from cavity.methods import EP
from cavity.testing import check_likelihood
from registered import REGISTERED_LIKELIHOODS, make_likelihood
from support import toy


@pytest.mark.parametrize("name", REGISTERED_LIKELIHOODS)
def test_likelihoods_of_the_library_pass(name):
    values = {"epsilon": 0.1, "noise": 0.4, "learn": True}
    report = check_likelihood(make_likelihood(REGISTERED_LIKELIHOODS[name], **values))
    assert len(report.passed) >= 8
    for law in report.skipped:
        assert "quadrature" in law or law in ("moments", "average", "log_probability")


# --- forged likelihoods ---------------------------------------------------------------
class Forged(BinaryProbit):
    """A correct likelihood whose moments `forge` changes."""

    def forge(self, found, f):
        return found

    def moments(self, f, y, exponent):
        return self.forge(super().moments(f, y, exponent), f)


class NotANumber(Forged):
    def forge(self, found, f):
        return found._replace(dv=torch.where(f.mean > 1, torch.nan, found.dv))


class NotANumberFarAway(Forged):
    def forge(self, found, f):
        return found._replace(value=(found.value.exp() - 1e-9).log())


class WrongShape(Forged):
    def forge(self, found, f):
        return found._replace(value=found.value[:, None])


class WrongSlope(Forged):
    def forge(self, found, f):
        return found._replace(dm=1.01 * found.dm)


class WrongVariance(Forged):
    def forge(self, found, f):
        return found._replace(dv=1.01 * found.dv, dr=1.01 * found.dr)


class WrongResidual(Forged):
    def forge(self, found, f):
        return found._replace(dr=1.01 * found.dr)


class WrongValue(Forged):
    """Z^1.01 with its derivatives: not the integral of any factor."""

    def forge(self, found, f):
        return type(found)(*(1.01 * x for x in found[:4]))


class WrongScale(Forged):
    """1.01 Z: probabilities that do not sum to 1."""

    def forge(self, found, f):
        return found._replace(value=found.value + 0.01)


class WrongSite(Forged):
    def sites(self, y):
        return torch.ones(len(y), 1, dtype=torch.long)


class RealSites(Forged):
    def sites(self, y):
        return torch.zeros(len(y), 1)


class ForeignParameters(Forged):
    """It learns a parameter, but returns no derivative in it."""

    parameters = (torch.nn.Parameter(torch.zeros(1, dtype=torch.float64)),)


class TooLarge(Likelihood):
    two_classes = True

    def log_probability(self, mean, var):
        found = BinaryProbit().log_probability(mean, var)
        return found + 0.01


class OtherInNumpy(BinaryProbit):
    def log_probability(self, mean, var):
        if isinstance(mean, np.ndarray):
            return super().log_probability(1.01 * mean, var)
        return super().log_probability(mean, var)


class WrongAverage(Softmax):
    def average(self, f, y):
        return type(found := super().average(f, y))(*(1.01 * x for x in found[:4]))


FORGED = {
    NotANumber: r"NotANumber.moments: dv returned NaN for \d+ of 12 values",
    NotANumberFarAway: r"NotANumberFarAway.moments: value returned NaN",
    WrongShape: r"WrongShape.moments: value returned shape \(12, 1\), expected \(12,\)",
    WrongSlope: r"WrongSlope.moments: dm: \d+ of 12 values are wrong",
    WrongVariance: r"WrongVariance.moments: dv: ",
    WrongResidual: r"WrongResidual.moments: dr: ",
    WrongValue: r"WrongValue.moments: quadrature at site 0",
    WrongScale: r"WrongScale.moments without variance is the probability",
    WrongSite: r"WrongSite.sites",
    RealSites: r"RealSites.sites",
    ForeignParameters: r"ForeignParameters.moments: own returned NoneType",
    TooLarge: r"TooLarge.log_probability sums to 1",
    OtherInNumpy: r"OtherInNumpy.log_probability in NumPy",
    WrongAverage: r"WrongAverage.average without variance",
}


@pytest.mark.parametrize("kind", FORGED, ids=lambda kind: kind.__name__)
def test_a_forged_likelihood_fails_by_name(kind):
    with pytest.raises(BadResult, match=FORGED[kind]) as caught:
        check_likelihood(kind())
    assert isinstance(caught.value, AssertionError)


def test_two_classes_of_a_likelihood_for_many_are_checked_on_request():
    assert check_likelihood(ProbitPairs(), 2).name == "BinaryProbit"


def test_a_class_instead_of_an_object_is_refused():
    with pytest.raises(BadOption, match="likelihood="):
        check_likelihood(BinaryProbit)


@pytest.mark.parametrize("kind", [WrongShape, WrongSite], ids=lambda k: k.__name__)
def test_a_fit_names_class_and_method(kind):
    X, y = toy(40, 2, 3)
    method = EP(likelihood=kind())
    with pytest.raises(BadResult, match=f"{kind.__name__}."):
        GPClassifier(method, n_inducing=5, max_epochs=2).fit(X, y)
