"""SEP: only the sums of the sites are kept; all factors of a class share one explicit M×M cavity."""

from typing import NamedTuple

import numpy as np

from .fixed_point import solve
from .gaussian import log_normaliser, moments, symmetric_inverse
from .sparse import (
    Factors,
    SparseModel,
    binary_factors,
    build_model,
    new_sites,
    pair_factors,
    site_sums,
    tilt,
)


class SEPResult(NamedTuple):
    """q(u_c) = N(mean, cov), precision K⁻¹ + P and natural mean h, all in u-space (whitened: LᵀPL, Lᵀh)."""

    log_z: float
    mean: np.ndarray  # (C, M)
    cov: np.ndarray  # (C, M, M)
    P: np.ndarray  # (C, M, M)
    h: np.ndarray  # (C, M)
    counts: np.ndarray  # (C,) factors touching each class
    model: SparseModel
    sweeps: int
    residual: float


def count_factors(factors: Factors, C):
    """n_c, the factors touching class c, (C,)."""
    return np.bincount(factors.classes.ravel(), minlength=C)


def shared_cavity(model, P, h, counts):
    """Λ\\_c = K⁻¹ + (1 − 1/n_c) P_c,  h\\_c = (1 − 1/n_c) h_c."""
    keep = 1 - 1 / counts
    return symmetric_inverse(model.K) + keep[:, None, None] * P, keep[:, None] * h


def select(factors: Factors, rows) -> Factors:
    """The factors of some points."""
    chosen = np.isin(factors.rows, rows)
    return Factors(*(field[chosen] for field in factors))


def gather(cavity, factors: Factors):
    """Each side of each factor gets the cavity (mean, cov) of its class."""
    return cavity[0][factors.classes], cavity[1][factors.classes]


def tied_step(model, batch: Factors, P, h, counts, damping):
    """P_c ← (1 − ρ b_c/n_c) P_c + ρ Σ_batch τ_new υυᵀ, same for h; b_c the batch's factors on class c."""
    cavity = moments(*shared_cavity(model, P, h, counts))
    P_new, h_new = site_sums(batch, *new_sites(batch, gather(cavity, batch)), len(counts))
    keep = 1 - damping * count_factors(batch, len(counts)) / counts
    return keep[:, None, None] * P + damping * P_new, keep[:, None] * h + damping * h_new


def tied_log_evidence(model, factors, P, h, counts) -> float:
    """Σ_c [g_c + n_c (g\\_c − g_c)] + Σ log Z, g the log-normaliser in R^M less the prior's.   [METHOD 5]"""
    prior = symmetric_inverse(model.K)
    g_prior = log_normaliser(prior, 0 * h)
    g = log_normaliser(prior + P, h) - g_prior
    cavity = shared_cavity(model, P, h, counts)
    g_cavity = log_normaliser(*cavity) - g_prior
    log_z = tilt(factors, gather(moments(*cavity), factors))[0]
    return float(np.sum(g + counts * (g_cavity - g)) + np.sum(log_z))


def run_sep(model, factors, damping, max_sweeps, tol, batches, accelerate) -> SEPResult:
    """Sweeps over the batches (default: one batch of all rows) from P = 0, h = 0."""
    C, M = model.Z.shape[:2]
    counts = count_factors(factors, C)
    parts = [factors] if batches is None else [select(factors, rows) for rows in batches]

    def sweep(P, h):
        for batch in parts:
            P, h = tied_step(model, batch, P, h, counts, damping)
        return P, h

    # ρ is inside the sweep, where mini-batches need it
    start = np.zeros((C, M, M)), np.zeros((C, M))
    (P, h), sweeps, residual = solve(sweep, start, 1.0, max_sweeps, damping * tol, accelerate)
    mean, cov = moments(symmetric_inverse(model.K) + P, h)
    log_z = tied_log_evidence(model, factors, P, h, counts)
    return SEPResult(log_z, mean, cov, P, h, counts, model, sweeps, residual / damping)


def sep(
    X,
    y,
    Z,
    kernel_per_class,
    noise,
    jitter=1e-6,
    damping=0.5,
    max_sweeps=2000,
    tol=1e-12,
    batches=None,
    accelerate=True,
) -> SEPResult:
    """Multi-class SEP; arguments as sparse_ep.   [METHOD 4, SEP]

    batches: lists of rows, met one after the other in every sweep; None is one batch of all rows.
    """
    model = build_model(Z, kernel_per_class, noise, jitter)
    return run_sep(model, pair_factors(model, X, y), damping, max_sweeps, tol, batches, accelerate)


def binary_sep(
    X,
    y,
    Z,
    kernel,
    noise=1.0,
    jitter=1e-6,
    damping=0.5,
    max_sweeps=2000,
    tol=1e-12,
    batches=None,
    accelerate=True,
) -> SEPResult:
    """SEP with one latent; arguments as binary_sparse_ep and sep."""
    model = build_model(np.asarray(Z)[None], [kernel], noise, jitter)
    return run_sep(model, binary_factors(model, X, y), damping, max_sweeps, tol, batches, accelerate)
