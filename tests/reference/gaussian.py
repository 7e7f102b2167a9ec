"""Gaussians in natural parameters, with explicit inverses."""

import numpy as np


def symmetric_inverse(A):
    """A⁻¹ of (..., M, M), symmetrised against rounding."""
    inverse = np.linalg.inv(A)
    return 0.5 * (inverse + np.swapaxes(inverse, -1, -2))


def outer(a):
    """a aᵀ of (..., M)."""
    return a[..., :, None] * a[..., None, :]


def moments(precision, h):
    """Covariance Λ⁻¹ and mean Λ⁻¹h of exp(−½ uᵀΛu + hᵀu). Returns (..., M), (..., M, M)."""
    cov = symmetric_inverse(precision)
    return np.einsum("...ij,...j->...i", cov, h), cov


def log_normaliser(precision, h):
    """log ∫ exp(−½ uᵀΛu + hᵀu) du = ½M log 2π − ½ log|Λ| + ½ hᵀΛ⁻¹h. Returns (...)."""
    sign, logdet = np.linalg.slogdet(precision)
    if np.any(sign <= 0):
        raise np.linalg.LinAlgError(
            "a precision matrix is not positive definite: lower damping=, or raise jitter="
        )
    mean, _ = moments(precision, h)
    return 0.5 * h.shape[-1] * np.log(2 * np.pi) - 0.5 * logdet + 0.5 * np.sum(h * mean, axis=-1)
