"""Sparse regression with explicit N×N matrices: what each method puts in the place of
K. [thesis 4.1, 4.2; review 2.1.1]
"""

from typing import NamedTuple

import numpy as np


class Kernels(NamedTuple):
    """k at inducing points, training rows and new rows."""

    mm: np.ndarray
    mn: np.ndarray
    nn: np.ndarray
    ms: np.ndarray
    ss: np.ndarray
    ns: np.ndarray


class Answer(NamedTuple):
    mean: np.ndarray
    cov: np.ndarray
    log_evidence: float


def kernels(k, Z, X, new) -> Kernels:
    return Kernels(k(Z, Z), k(Z, X), k(X, X), k(Z, new), k(new, new), k(X, new))


def log_normal(y, C):
    return float(
        -0.5
        * (
            y @ np.linalg.solve(C, y)
            + np.linalg.slogdet(C)[1]
            + len(y) * np.log(2 * np.pi)
        )
    )


def conditional(train, cross, prior, y):
    """Mean and covariance of f* given y ~ N(0, train), cov(y, f*) = cross, cov(f*) =
    prior.
    """
    return cross.T @ np.linalg.solve(train, y), prior - cross.T @ np.linalg.solve(
        train, cross
    )


def exact(K: Kernels, y, noise) -> Answer:
    C = K.nn + noise * np.eye(len(y))
    return Answer(*conditional(C, K.ns, K.ss, y), log_normal(y, C))


def sparse(K: Kernels, y, noise, method) -> Answer:
    """FITC, VI (Titsias), PP, SR, Nyström: the prior that each assumes over y and f*."""
    inverse = np.linalg.inv(K.mm)
    Q, Qs, Qss = (
        K.mn.T @ inverse @ K.mn,
        K.mn.T @ inverse @ K.ms,
        K.ms.T @ inverse @ K.ms,
    )
    eye = noise * np.eye(len(y))
    C = Q + eye + (np.diag(np.diag(K.nn - Q)) if method == "fitc" else 0)
    evidence = log_normal(y, C) - (
        0.5 * np.trace(K.nn - Q) / noise if method == "vi" else 0.0
    )
    cross = K.ns if method == "nystrom" else Qs
    prior = Qss if method == "sr" else K.ss
    return Answer(*conditional(C, cross, prior, y), evidence)
