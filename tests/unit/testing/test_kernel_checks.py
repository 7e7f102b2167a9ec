"""Kernels of the library pass their checks; each forged one fails by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cavity import BadOption, GPClassifier
from cavity.common.torch_namespace import TORCH
from cavity.errors import BadInput, BadResult
from cavity.kernels import RBF, Kernel, Linear, Stationary
from cavity.testing import check_kernel
from registered import REGISTERED_KERNELS, make_kernel
from support import toy


@pytest.mark.parametrize("name", REGISTERED_KERNELS)
def test_kernels_of_the_library_pass(name):
    report = check_kernel(make_kernel(REGISTERED_KERNELS[name]))
    assert not report.skipped and len(report.passed) >= 15
    assert "formula in ONNX: cross" in report.passed


def test_options_pass_too():
    report = check_kernel(Linear(fades=True))
    assert "formula in NumPy: diag" in report.passed
    columns = np.random.default_rng(0).normal(2, 5, (30, 1))
    check_kernel(RBF(lengthscale=[[0.5], [3.0]]), columns)


# --- forged kernels -------------------------------------------------------------------
class Cauchy(Stationary):
    """Correct: 1/(1 + d²)."""

    @staticmethod
    def shape(xp, d2):
        return -xp.log1p(d2)


class NotANumber(Stationary):
    """log d² of far points only, and NaN for the near ones."""

    @staticmethod
    def shape(xp, d2):
        return xp.log(1 - d2)


class Scalar(Stationary):
    @staticmethod
    def shape(xp, d2):
        return -d2.sum()


class Shifted(Stationary):
    """k(x, x) is not the variance."""

    @staticmethod
    def shape(xp, d2):
        return -0.5 * d2 - 0.01


class Box(Stationary):
    """exp(−d⁴) is not a covariance."""

    @staticmethod
    def shape(xp, d2):
        return -d2 * d2


class Module(torch.nn.Module):
    """A kernel of three methods, correct: v (1 + x·x')."""

    def __init__(self) -> None:
        super().__init__()
        self.log_v = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def full(self, Z):
        return self.cross_of(Z, Z.mT)

    def cross(self, Z, X):
        return self.cross_of(Z, X.T)

    def cross_of(self, Z, other):
        return self.log_v.exp()[:, None, None] * (1 + Z @ other)

    def diag(self, X):
        return self.log_v.exp()[:, None] * (1 + X.square().sum(1))


class Lopsided(Module):
    def full(self, Z):
        k = super().full(Z).clone()
        k[:, 0, 1] *= 1.01
        return k


class Indefinite(Module):
    def cross_of(self, Z, other):
        return self.log_v.exp()[:, None, None] * (Z @ other - 1)

    def diag(self, X):
        return self.log_v.exp()[:, None] * (X.square().sum(1) - 1)


class Turned(Module):
    def cross(self, Z, X):
        return super().cross(Z, X).mT


class ShortDiagonal(Module):
    def diag(self, X):
        return 0.99 * super().diag(X)


class Double(torch.autograd.Function):
    """The identity, with a derivative that is 1 % too large."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, cotangent):
        return 1.01 * cotangent


class WrongSlope(Module):
    def cross_of(self, Z, other):
        return Double.apply(super().cross_of(Z, other))


class OtherInNumpy(RBF):
    def formula(self, xp):
        formula = super().formula(xp)
        if xp is TORCH:
            return formula
        return formula._replace(shape=lambda xp, d2: -0.505 * d2)


FORGED = {
    NotANumber: r"NotANumber.shape returned NaN for \d+ of 400 distances",
    Scalar: r"Scalar.shape returned shape \(\), expected \(2, 1, 400\)",
    Shifted: r"Shifted.shape returned -0.01 for d² = 0",
    Box: r"Box.full .* eigenvalue",
    Lopsided: r"Lopsided.full is not symmetric",
    Indefinite: r"Indefinite.full .* eigenvalue",
    Turned: r"Turned.cross returned shape \(2, 40, 7\), expected \(2, 7, 40\)",
    ShortDiagonal: r"ShortDiagonal.diag",
    WrongSlope: r"WrongSlope.full: derivative in log_v",
    OtherInNumpy: r"OtherInNumpy.formula in NumPy: cross",
}


@pytest.mark.parametrize("kind", FORGED, ids=lambda kind: kind.__name__)
def test_a_forged_kernel_fails_by_name(kind):
    with pytest.raises(BadResult, match=FORGED[kind]) as caught:
        check_kernel(kind())
    assert isinstance(caught.value, AssertionError)


def test_what_a_kernel_does_not_offer_is_reported():
    report = check_kernel(Module())
    assert list(report.skipped) == ["formula in NumPy and ONNX"]
    assert "skipped  formula" in str(report) and "full: derivative in Z" in str(report)


def test_a_part_of_a_sum_is_named():
    with pytest.raises(BadResult, match=r"NotANumber.shape"):
        check_kernel(RBF() + NotANumber())


def test_the_kernel_stays_as_it_is():
    kernel = Cauchy(lengthscale=2.0)
    check_kernel(kernel)
    assert not list(kernel.parameters()) and kernel.lengthscale == 2.0


def test_wrong_arguments_are_refused():
    with pytest.raises(BadOption, match="kernel="):
        check_kernel(Cauchy)
    with pytest.raises(BadInput, match=r"\(3, 2\)"):
        check_kernel(Cauchy(), np.ones((3, 2)))


# --- in a fit -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (NotANumber(), r"NotANumber.full returned NaN"),
        (RBF() + NotANumber(), r"NotANumber.full returned NaN"),
        (Turned(), r"Turned.cross returned shape"),
    ],
    ids=["NaN", "part", "shape"],
)
def test_a_fit_names_class_and_method(kernel, said):
    X, y = toy(40, 2, 3)
    with pytest.raises(BadResult, match=said):
        GPClassifier("ep", kernel=kernel, n_inducing=5, max_epochs=2).fit(X, y)


class LaterNotANumber(Kernel):
    """Finite until its parameter has moved."""

    positive = ("variance",)

    def __init__(self, variance: float = 1.0) -> None:
        super().__init__()
        self.variance = variance

    def cross(self, Z, X):
        moved = self.log_variance.detach().abs() > 1e-6
        k = self.log_variance.exp()[:, None, None] * (1 + Z @ X.mT)
        return torch.where(moved[:, None, None], torch.nan, k)

    def diag(self, X):
        return self.log_variance.exp()[:, None] * (1 + X.square().sum(1))


def test_a_kernel_that_fails_during_training_is_named():
    X, y = toy(40, 2, 3)
    clf = GPClassifier("ep", kernel=LaterNotANumber(), n_inducing=5, max_epochs=5)
    with pytest.raises(BadResult, match=r"LaterNotANumber.full returned NaN"):
        clf.fit(X, y)
