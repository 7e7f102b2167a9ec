"""Fixed points x = g(x) by sweeps, with Anderson's extrapolation: EP may need thousands
of plain sweeps.
"""

import numpy as np

PLAIN_SWEEPS = 10  # before extrapolation starts
MEMORY = 10  # sweeps that extrapolation uses
ROUNDING = 1e-8  # below this, a residual that no longer falls is rounding


def flatten(arrays):
    """One vector of several arrays."""
    return np.concatenate([a.ravel() for a in arrays])


def unflatten(x, like):
    """The arrays again, shaped like `like`."""
    parts = np.split(x, np.cumsum([a.size for a in like])[:-1])
    return [part.reshape(a.shape) for part, a in zip(parts, like, strict=True)]


def converged(residuals, tol):
    """At tol, or no better for 30 sweeps where only rounding is left."""
    if residuals[-1] <= tol:
        return True
    stuck = len(residuals) > 60 and min(residuals[-30:]) >= min(residuals[:-30])
    return tol > 0 and residuals[-1] < ROUNDING and stuck


def extrapolate(xs, fs):
    """x + f − (ΔX + ΔF)γ, γ the least-squares solution of ΔF γ = f, f = g(x) − x."""
    dX, dF = np.diff(np.array(xs), axis=0).T, np.diff(np.array(fs), axis=0).T
    gamma = np.linalg.lstsq(dF, fs[-1], rcond=1e-12)[0]
    return xs[-1] + fs[-1] - (dX + dF) @ gamma


def residual_of(arrays, target):
    """max|g(x) − x| / max(1, max|g(x)|), worst over the arrays; inf outside the domain
    of g.
    """
    moves = [
        np.abs(b - a).max(initial=0) / max(1, np.abs(b).max(initial=0))
        for a, b in zip(arrays, target, strict=True)
    ]
    return float(max(moves)) if np.all(np.isfinite(moves)) else np.inf


def solve(g, start, max_sweeps, tol, accelerate):
    """Fixed point of g over several arrays: the arrays, the number of sweeps, the
    residual.

    Without `accelerate`: x ← g(x), and the last x. With it: extrapolated sweeps, and
    the best x. An extrapolation that raises the residual tenfold is undone: back to the
    best x, then plain sweeps.
    """
    x, xs, fs, residuals, wait = flatten(start), [], [], [np.inf], PLAIN_SWEEPS
    best, best_x = np.inf, x
    while len(residuals) <= max_sweeps and not converged(residuals, tol):
        arrays = unflatten(x, start)
        with np.errstate(all="ignore"):  # an extrapolation may leave the domain of g
            target = g(*arrays)
        residuals.append(residual_of(arrays, target))
        if not accelerate:
            x, best_x, best = flatten(target), flatten(target), residuals[-1]
            continue
        if residuals[-1] > 10 * best and wait <= 0:
            x, xs, fs, wait = best_x, [], [], PLAIN_SWEEPS
            continue
        if residuals[-1] < best:
            best, best_x = residuals[-1], x
        xs, fs, wait = (
            [*xs[-MEMORY:], x],
            [*fs[-MEMORY:], flatten(target) - x],
            wait - 1,
        )
        x = extrapolate(xs, fs) if wait <= 0 and len(xs) > 1 else flatten(target)
    return unflatten(best_x, start), len(residuals) - 1, best
