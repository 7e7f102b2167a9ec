"""Laplace's method with explicit matrices: softmax with coupled classes.   [R&W 3.5,
Williams & Barber 1998]
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit, log_softmax, softmax


class SoftmaxLaplace(NamedTuple):
    """The mode, the covariance of all CN values (classes outermost), and log q(y)."""

    mode: np.ndarray  # (C, N)
    cov: np.ndarray  # (CN, CN)
    log_evidence: float


def hessian(pi):
    """W = diag(π) − ΠΠᵀ of all values, from π (C, N).   [R&W 3.38]"""
    C, N = pi.shape
    W = np.diag(pi.reshape(-1))
    for n in range(N):
        at = np.arange(C) * N + n
        W[np.ix_(at, at)] -= np.outer(pi[:, n], pi[:, n])
    return W


def softmax_laplace(K_list, y, sweeps=200) -> SoftmaxLaplace:
    """Newton's iteration f ← (K⁻¹ + W)⁻¹(Wf + y − π), written K(I + WK)⁻¹; K_list (C,
    N, N), y (N,).   [R&W 3.39, 3.44]
    """
    C, N = len(K_list), len(y)
    K = np.zeros((C * N, C * N))
    for c in range(C):
        K[c * N : (c + 1) * N, c * N : (c + 1) * N] = K_list[c]
    own = (np.arange(C)[:, None] == y).astype(float).reshape(-1)
    f, eye = np.zeros(C * N), np.eye(C * N)
    for _ in range(sweeps):
        pi = softmax(f.reshape(C, N), axis=0)
        W = hessian(pi)
        alpha = np.linalg.inv(eye + W @ K) @ (W @ f + own - pi.reshape(-1))
        f = K @ alpha
    pi = softmax(f.reshape(C, N), axis=0)
    W = hessian(pi)
    log_lik = log_softmax(f.reshape(C, N), axis=0)[y, np.arange(N)].sum()
    log_evidence = (
        -0.5 * f @ (own - pi.reshape(-1))
        + log_lik
        - 0.5 * np.linalg.slogdet(eye + W @ K)[1]
    )
    return SoftmaxLaplace(
        f.reshape(C, N), K @ np.linalg.inv(eye + W @ K), float(log_evidence)
    )


class LogisticLaplace(NamedTuple):
    """The mode f̂ (N,), log p(y), and mean and variance at new rows."""

    mode: np.ndarray
    log_evidence: float
    mean: np.ndarray
    var: np.ndarray


def logistic_laplace(K, y, Kstar, kss, sweeps=100) -> LogisticLaplace:
    """Two classes, y = ±1: Newton's steps on Ψ(f) = log p(y|f) − ½ fᵀK⁻¹f, inverses
    written out.   [review 1.3.1]
    """
    f = np.zeros(len(y))
    K_inv = np.linalg.inv(K)
    for _ in range(sweeps):
        slope = y * expit(-y * f)
        W = np.diag(expit(f) * expit(-f))
        f = f + np.linalg.solve(W + K_inv, slope - K_inv @ f)
    slope = y * expit(-y * f)
    W = np.diag(expit(f) * expit(-f))
    log_evidence = (
        np.log(expit(y * f)).sum()
        - 0.5 * f @ K_inv @ f
        - 0.5 * np.linalg.slogdet(np.eye(len(y)) + K @ W)[1]
    )
    gain = Kstar @ np.linalg.inv(K + np.linalg.inv(W)) @ Kstar.T
    return LogisticLaplace(f, log_evidence, Kstar @ slope, kss - np.diag(gain))
