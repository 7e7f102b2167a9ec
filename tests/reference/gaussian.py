"""Gaussians N(u; 0, K) exp(−½ uᵀPu + hᵀu), with explicit inverses."""

import numpy as np


def outer(a):
    """a aᵀ of (..., D)."""
    return a[..., :, None] * a[..., None, :]


def moments(K, P, h):
    """Mean Σh (..., D) and covariance Σ = (K⁻¹ + P)⁻¹ = K(I + PK)⁻¹ (..., D, D)."""
    cov = K @ np.linalg.inv(np.eye(K.shape[-1]) + P @ K)
    cov = 0.5 * (cov + np.swapaxes(cov, -1, -2))  # symmetric despite rounding
    return np.einsum("...ij,...j->...i", cov, h), cov


def log_normaliser(K, P, h):
    """G = log ∫ N(u; 0, K) exp(−½ uᵀPu + hᵀu) du = −½ log|I + PK| + ½ hᵀΣh.

    Returns (...).
    """
    sign, logdet = np.linalg.slogdet(np.eye(K.shape[-1]) + P @ K)
    if np.any(sign <= 0):
        raise np.linalg.LinAlgError(
            "a precision matrix is not positive definite: lower damping=, or raise "
            "jitter="
        )
    return -0.5 * logdet + 0.5 * np.sum(h * moments(K, P, h)[0], axis=-1)
