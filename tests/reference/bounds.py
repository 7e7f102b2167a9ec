"""The review's bounds of the logistic likelihood, in its own symbols: u with prior N(0,
K_mm), labels y = ±1.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit


class Gram(NamedTuple):
    """K_mm (m, m), K_mn (m, n), diag K_nn (n,)."""

    mm: np.ndarray
    mn: np.ndarray
    nn: np.ndarray

    @property
    def projection(self):
        """K_nm K_mm⁻¹ (n, m)."""
        return self.mn.T @ np.linalg.inv(self.mm)

    @property
    def residual(self):
        """diag K̃ = diag(K_nn − K_nm K_mm⁻¹ K_mn) (n,)."""
        return self.nn - np.sum(self.projection * self.mn.T, axis=1)


def kl(mu, Sigma, K):
    """KL(N(μ, Σ) ‖ N(0, K))."""
    K_inv = np.linalg.inv(K)
    log_ratio = np.linalg.slogdet(K)[1] - np.linalg.slogdet(Sigma)[1]
    return 0.5 * (log_ratio - len(K) + np.trace(K_inv @ Sigma) + mu @ K_inv @ mu)


def marginals(mu, Sigma, K: Gram):
    """m_i and S_i² of q(f_i)."""
    A = K.projection
    return A @ mu, K.residual + np.sum(A @ Sigma * A, axis=1)


def optimum(curve, pull, K: Gram):
    """q that maximises Σ [pull_i f_i − curve_i f_i²] − KL: Σ̂ = (2AᵀΨA + K⁻¹)⁻¹, μ̂ =
    Σ̂ Aᵀ pull.   [review 13, 14]
    """
    A = K.projection
    Sigma = np.linalg.inv(2 * A.T @ (curve[:, None] * A) + np.linalg.inv(K.mm))
    return Sigma @ A.T @ pull, Sigma


def jaakkola_lambda(xi):
    return np.tanh(xi / 2) / (4 * xi)


def jaakkola_bound(mu, Sigma, xi, y, K: Gram):
    """J(μ, Σ, ξ)."""
    m, var = marginals(mu, Sigma, K)
    rows = (
        np.log(expit(xi))
        + (y * m - xi) / 2
        - jaakkola_lambda(xi) * (m**2 + var - xi**2)
    )
    return rows.sum() - kl(mu, Sigma, K.mm)


def jaakkola(y, K: Gram, sweeps=400):
    """Alternate (13), (14) with ξ² = m² + S²: μ, Σ, ξ."""
    xi = np.ones(len(y))
    for _ in range(sweeps):
        mu, Sigma = optimum(jaakkola_lambda(xi), y / 2, K)
        m, var = marginals(mu, Sigma, K)
        xi = np.sqrt(m**2 + var)
    return mu, Sigma, xi


def taylor_value(mu, Sigma, xi, y, K: Gram):
    """J₂(μ, Σ, ξ)."""
    m, var = marginals(mu, Sigma, K)
    s = expit(y * xi)
    rows = (
        np.log(s) + y * (1 - s) * (m - xi) - 0.5 * s * (1 - s) * (var + (m - xi) ** 2)
    )
    return rows.sum() - kl(mu, Sigma, K.mm)


def taylor_optimum(xi, y, K: Gram):
    """μ̂(ξ), Σ̂(ξ)."""
    s = expit(y * xi)
    psi = 0.5 * s * (1 - s)
    return optimum(psi, y * (1 - s) + 2 * psi * xi, K)


def taylor(y, K: Gram, sweeps=300):
    """Alternate the optimum of q with ξ = m: μ, Σ, ξ."""
    xi = np.zeros(len(y))
    for _ in range(sweeps):
        mu, Sigma = taylor_optimum(xi, y, K)
        xi = marginals(mu, Sigma, K)[0]
    return mu, Sigma, xi
