"""EP by brute force: one solver for every factor, with explicit matrices and inverses.
[METHOD 3, 4, 5]

    latents   g_c ~ N(0, K_c) in R^D, independent over the classes c
    factors   factor i has S sides; side s sees t = υ·g_c and gets a site exp(−½ τ t² + ν t)
    q         P_c = Σ τ υυᵀ,  h_c = Σ ν υ,  q(g_c) ∝ N(g_c; 0, K_c) exp(−½ g_cᵀP_c g_c + h_cᵀg_c)
    cavity    own sites:   P_c − pτ υυᵀ,  h_c − pν υ
              tied sites:  (1 − 1/n_c) P_c,  (1 − 1/n_c) h_c,  n_c the factors on class
              c
    new site  τ = −d₂/(p(1 + v\\d₂)),  ν = (d₁ − m\\d₂)/(p(1 + v\\d₂)),  d₁, d₂ of log Z
    in m\\
    evidence  own:   Σ_c G(q_c) + Σ_i (1/p) [log Z + Σ_sides G(cavity) − G(q)]
              tied:  Σ_c [G(q_c) + n_c (G(cavity_c) − G(q_c))] + Σ_i log Z

A method is a factor (factors.py), a place for its sites (υ and r) and the options of
`run`; brute_ep.py lists them.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from .fixed_point import solve
from .gaussian import log_normaliser, moments, outer


@dataclass(frozen=True)
class Factor:
    """F factors of S sides each, and where their sites sit."""

    rows: np.ndarray  # (F,)      which point
    classes: np.ndarray  # (F, S)    which latent
    upsilon: np.ndarray  # (F, S, D) t = υ·g
    r: np.ndarray  # (F, S)    variance of f given t
    removed: np.ndarray  # (F,)      p, the share of a site that its cavity removes

    epsilon = 0.0  # share of labels that the likelihood takes for random

    def derivatives(self, mean, var):
        """log Z (F,), then d₁ and d₂ (F, S), from the cavities m\\, v\\ (F, S) of t."""
        raise NotImplementedError

    def at(self, index):
        """Some of the factors."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(
            self,
            **{k: v[index] for k, v in values.items() if isinstance(v, np.ndarray)},
        )


class EPResult(NamedTuple):
    """q(g_c) = N(mean, cov), the sites and the evidence."""

    log_z: float
    mean: np.ndarray  # (C, D)
    cov: np.ndarray  # (C, D, D)
    P: np.ndarray  # (C, D, D)
    h: np.ndarray  # (C, D)
    tau: (
        np.ndarray
    )  # (F, S) per row, all its copies if it has a weight; tied: what a sweep would add
    nu: np.ndarray  # (F, S)
    model: Any  # K (C, D, D), and what predictions need
    factor: Factor
    sweeps: int
    # how far one undamped sweep would still move the sites, relative to their size
    residual: float


def site_sums(factor: Factor, tau, nu, C):
    """P_c = Σ τ υυᵀ (C, D, D) and h_c = Σ ν υ (C, D) over the sites (F, S) of class c."""
    D = factor.upsilon.shape[-1]
    P, h = np.zeros((C, D, D)), np.zeros((C, D))
    np.add.at(P, factor.classes, tau[..., None, None] * outer(factor.upsilon))
    np.add.at(h, factor.classes, nu[..., None] * factor.upsilon)
    return P, h


def own_cavities(model, factor: Factor, tau, nu, index=slice(None)):
    """K, P − pτ υυᵀ (F, S, D, D), h − pν υ (F, S, D) of every site, or of those at
    `index`.
    """
    P, h = site_sums(factor, tau, nu, len(model.K))
    f, p = factor.at(index), factor.removed[index, None]
    less_P = (p * tau[index])[..., None, None] * outer(f.upsilon)
    less_h = (p * nu[index])[..., None] * f.upsilon
    return model.K[f.classes], P[f.classes] - less_P, h[f.classes] - less_h


def count_factors(factor: Factor, C):
    """n_c, the factors on class c, (C,)."""
    return np.bincount(factor.classes.ravel(), minlength=C)


def shared_cavity(model, P, h, counts):
    """K, (1 − 1/n_c) P_c, (1 − 1/n_c) h_c."""
    keep = 1 - 1 / counts
    return model.K, keep[:, None, None] * P, keep[:, None] * h


def gather(cavity, factor: Factor):
    """The shared cavity (mean, cov) of the class of each side."""
    return cavity[0][factor.classes], cavity[1][factor.classes]


def tilt(factor: Factor, cavity):
    """log Z (F,), then d₁, d₂, m\\, v\\ of t = υ·g (F, S), from cavities of g: mean (F,
    S, D), cov (F, S, D, D).
    """
    mean = np.einsum("fsm,fsm->fs", factor.upsilon, cavity[0])
    var = np.einsum("fsm,fsmk,fsk->fs", factor.upsilon, cavity[1], factor.upsilon)
    return *factor.derivatives(mean, var), mean, var


def new_sites(factor: Factor, cavity):
    """τ = −d₂/(p(1 + v\\d₂)),  ν = (d₁ − m\\d₂)/(p(1 + v\\d₂)), each (F, S)."""
    _, d1, d2, mean, var = tilt(factor, cavity)
    scale = factor.removed[:, None] * (1 + var * d2)
    return -d2 / scale, (d1 - mean * d2) / scale


def own_sweep(model, factor, parts, damping, tau, nu):
    """τ ← (1−ρ)τ + ρ τ_new, same for ν, part after part."""
    tau, nu = tau.copy(), nu.copy()
    for part in parts:
        cavity = moments(*own_cavities(model, factor, tau, nu, part))
        for site, new in zip(
            (tau, nu), new_sites(factor.at(part), cavity), strict=True
        ):
            site[part] += damping * (new - site[part])
    return tau, nu


def averaged_sweep(model, factor, parts, damping, tau, nu):
    """Mini-batch EP: P_c ← (1 − ρ|B|/N) P_c + ρ Σ_B τ_new υυᵀ, same for h.

    What the sums hold of every site decays with them, so P = Σ τ υυᵀ at all times, and
    a cavity removes just that. |B|/N is the share of the rows.
    """
    tau, nu, N = tau.copy(), nu.copy(), len(np.unique(factor.rows))
    for part in parts:
        batch = factor.at(part)
        new = new_sites(batch, moments(*own_cavities(model, factor, tau, nu, part)))
        for site, value in zip((tau, nu), new, strict=True):
            site *= 1 - damping * len(np.unique(batch.rows)) / N
            site[part] += damping * value
    return tau, nu


def tied_sweep(model, factor, parts, damping, P, h):
    """P_c ← (1 − ρ b_c/n_c) P_c + ρ Σ_part τ_new υυᵀ, same for h; b_c the factors of
    the part on class c.
    """
    counts = count_factors(factor, len(P))
    for part in parts:
        batch = factor.at(part)
        cavity = moments(*shared_cavity(model, P, h, counts))
        P_new, h_new = site_sums(
            batch, *new_sites(batch, gather(cavity, batch)), len(P)
        )
        keep = 1 - damping * count_factors(batch, len(P)) / counts
        P, h = (
            keep[:, None, None] * P + damping * P_new,
            keep[:, None] * h + damping * h_new,
        )
    return P, h


def log_evidence(model, factor: Factor, tau, nu) -> float:
    """Σ_c G(q_c) + Σ_i (1/p) [log Z + Σ_sides G(cavity) − G(q)].   [METHOD 5]"""
    g = log_normaliser(model.K, *site_sums(factor, tau, nu, len(model.K)))
    cavity = own_cavities(model, factor, tau, nu)
    log_z = tilt(factor, moments(*cavity))[0]
    log_s = (
        log_z + np.sum(log_normaliser(*cavity) - g[factor.classes], axis=1)
    ) / factor.removed
    return float(np.sum(g) + np.sum(log_s))


def tied_log_evidence(model, factor: Factor, P, h) -> float:
    """Σ_c [G(q_c) + n_c (G(cavity_c) − G(q_c))] + Σ_i log Z.   [METHOD 5]"""
    counts = count_factors(factor, len(P))
    cavity = shared_cavity(model, P, h, counts)
    g, g_cavity = log_normaliser(model.K, P, h), log_normaliser(*cavity)
    log_z = tilt(factor, gather(moments(*cavity), factor))[0]
    return float(np.sum(g + counts * (g_cavity - g)) + np.sum(log_z))


def run(
    model,
    factor: Factor,
    tied=False,
    batches=None,
    sequential=False,
    damping=0.5,
    max_sweeps=2000,
    tol=1e-12,
    accelerate=True,
) -> EPResult:
    """Sweeps from empty sites to convergence, then q and its evidence. damping is ρ.

    A sweep refreshes all factors in parallel; with `batches` (lists of rows) batch
    after batch; with `sequential` one after the other. accelerate=False, tol=0,
    max_sweeps=k makes exactly k plain sweeps.
    """
    F, C, D = len(factor.rows), *model.K.shape[:2]
    parts = (
        [np.arange(F)]
        if batches is None
        else [np.isin(factor.rows, rows) for rows in batches]
    )
    if sequential:
        parts = [[i] for i in range(F)]
    sweep = tied_sweep if tied else own_sweep
    start = (
        (np.zeros((C, D, D)), np.zeros((C, D)))
        if tied
        else (np.zeros(factor.r.shape),) * 2
    )
    found, sweeps, residual = solve(
        lambda *x: sweep(model, factor, parts, damping, *x),
        start,
        max_sweeps,
        damping * tol,
        accelerate,
    )
    if tied:
        P, h = found
        cavity = moments(*shared_cavity(model, P, h, count_factors(factor, C)))
        tau, nu = new_sites(factor, gather(cavity, factor))
        log_z = tied_log_evidence(model, factor, P, h)
    else:
        tau, nu = found
        P, h = site_sums(factor, tau, nu, C)
        log_z = log_evidence(model, factor, tau, nu)
    q = moments(model.K, P, h)
    return EPResult(log_z, *q, P, h, tau, nu, model, factor, sweeps, residual / damping)
