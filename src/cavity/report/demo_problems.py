"""The two problems of the demo, which need no files, and the result of a method on a problem."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from cavity.report.calibration import Array, error, expected_calibration_error, nll

BOX = 2.5  # the rows of the toy set are uniform in [−BOX, BOX]²


class Problem(NamedTuple):
    """Data set, split into training and test rows."""

    name: str
    X: Array  # [N D]
    y: NDArray[np.int64]  # [N], 0..C−1
    X_test: Array
    y_test: NDArray[np.int64]

    def __str__(self) -> str:
        (N, D), C = self.X.shape, len(np.unique(self.y))
        return f"{self.name}: {N} rows, {D} columns, {C} classes; {len(self.y_test)} test rows"


class DemoResult(NamedTuple):
    """Fitted model and its probabilities for the test rows."""

    problem: Problem
    method: str
    model: Any
    P: Array  # [n C]
    seconds: float
    epochs: str

    def row(self) -> dict[str, str]:
        """Return one row of the table."""
        P, y = self.P, self.problem.y_test
        return {
            "data": self.problem.name,
            "method": self.method,
            "NLL": f"{nll(P, y):.3f}",
            "error": f"{error(P, y):.3f}",
            "ECE": f"{expected_calibration_error(P, y):.3f}",
            "fit seconds": f"{self.seconds:.1f}",
            "epochs": self.epochs,
        }


def make_toy(rows: int, seed: int) -> Problem:
    r"""Make the synthetic problem of the paper: y = argmax_c f_c(x), with three draws f_c from a GP prior.

        f(x) = α(x₁)ᵀ W α(x₂),   α(s) = L⁻¹ k(g, s),   W_ij ~ N(0, 1)

    This is a draw from the RBF prior with lengthscale 1, up to a negligible error: the kernel is a product over the two
    columns, and the grid g of each is much finer than a lengthscale. Half of the rows are test rows.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-BOX, BOX, (2 * rows, 2))
    g = np.linspace(-BOX, BOX, 25)
    L = np.linalg.cholesky(_rbf(g, g) + 1e-10 * np.eye(len(g)))
    a1, a2 = (np.linalg.solve(L, _rbf(g, column)) for column in X.T)
    W = rng.standard_normal((3, len(g), len(g)))
    y = np.einsum("in,cij,jn->nc", a1, W, a2, optimize=True).argmax(1)
    return Problem("toy", X[:rows], y[:rows], X[rows:], y[rows:])


def _rbf(s: Array, t: Array) -> Array:
    return np.asarray(np.exp(-0.5 * (s[:, None] - t[None, :]) ** 2))


def make_digits(rows: int, seed: int) -> Problem:
    """Load the 8 × 8 handwritten digits of scikit-learn."""
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, train_size=rows, stratify=y, random_state=seed)
    return Problem("digits", X, y, X_test, y_test)
