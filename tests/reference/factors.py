"""The factors of EP: each knows log Z and its derivatives in the cavity means of its
sides.   [METHOD 4]

Probit       Φ(Σ ± t / √Σ r)^ω, two sides (y, k) for each pair, one for one latent; Θ(Σ ± f) where r = 0
PanelProbit  the same factor by another quadrature (tilted.py)
Robust       (1−ε) P(f_y largest) + ε/C, one side per latent; one latent: (1−ε) Φ(y t/√r) + ε/2
"""

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.special import log_ndtr

from .probit import factor_derivatives, hazard
from .robust import mix, robust_moments
from .solver import Factor
from .tilted import bend, log_integral, mean_derivatives, tilt


def pair_sides(y, C):
    """Rows (F,), classes (F, S) and signs (F, S) of the probit factors.

    C > 1: every (n, k), k ≠ y_n, n slowest, k ascending; sides (y_n, k), signs (+1,
    −1). C = 1: y = ±1 is the sign.
    """
    if C == 1:
        y = np.asarray(y, dtype=float)
        if not np.all(np.abs(y) == 1):
            raise ValueError(
                f"with one latent, labels are -1 and +1, got {np.unique(y)}"
            )
        return np.arange(len(y)), np.zeros((len(y), 1), dtype=int), y[:, None]
    grid = product(range(len(y)), range(C))
    pairs = [(n, y[n], k) for n, k in grid if k != y[n]]
    pairs = np.array(pairs, dtype=int).reshape(-1, 3)
    return pairs[:, 0], pairs[:, 1:], np.tile([1.0, -1.0], (len(pairs), 1))


@dataclass(frozen=True)
class Probit(Factor):
    """Φ(Σ_s sign_s t_s / √Σ_s r_s)^exponent: closed form at exponent 1, Gauss–Legendre
    panels elsewhere.
    """

    signs: np.ndarray  # (F, S)
    exponent: np.ndarray  # (F,)

    def derivatives(self, mean, var):
        d, v, R = np.sum(self.signs * mean, axis=1), var.sum(axis=1), self.r.sum(axis=1)
        log_z, d1, d2 = self.integrate(d, v, R)
        return log_z, self.signs * d1[:, None], d2[:, None] + 0 * var

    def integrate(self, d, v, R):
        """log ∫ Φ(x/√R)^exponent N(x; d, v) dx and its first two derivatives in d, each
        (F,).
        """
        return factor_derivatives(d, v, R, self.exponent)


@dataclass(frozen=True)
class PanelProbit(Probit):
    """The same by the mode, ends and panels of tilted.py; adaptive: scipy's quad
    instead of fixed panels.
    """

    adaptive: bool = False

    def integrate(self, d, v, R):
        each = zip(d, v, R, self.exponent, strict=True)
        return np.array([power_moments(*given, self.adaptive) for given in each]).T


def power_moments(mean, var, r, power, adaptive=True):
    """log Z, ∂/∂m, ∂²/∂m² of Z = ∫ Φ(d/√r)^p N(d; mean, var) dd for one factor; NaN
    outside the domain.
    """
    if not (np.isfinite(mean) and var > 0):
        return math.nan, math.nan, math.nan
    t = tilt(mean, var, [0.0], [r], power)
    return log_integral(t, adaptive), *mean_derivatives(t, adaptive)


@dataclass(frozen=True)
class Robust(Factor):
    """(1−ε) P(f_y largest) + ε/C, f_c ~ N(t_c, r_c); derivatives from robust.py. τ < 0
    is genuine for ε > 0.
    """

    y: np.ndarray  # (F,) class, or ±1 if there is one latent
    epsilon: float = 0.0
    adaptive: bool = False

    def derivatives(self, mean, var):
        log_z, d1, d2 = np.zeros(len(mean)), np.zeros(mean.shape), np.zeros(mean.shape)
        for n, y in enumerate(self.y):
            log_z[n], d1[n], d2[n] = self.one_point(y, mean[n], var[n] + self.r[n])
        return log_z, d1, d2

    def one_point(self, y, mean, V):
        """log Z, d₁ (C,), d₂ (C,) of one point from the cavities of f, V = v\\ + r; NaN
        outside the domain.
        """
        if not (np.all(np.isfinite(mean)) and np.all(V > 0)):
            return math.nan, math.nan, math.nan
        if len(mean) > 1:
            z = robust_moments(y, mean, V, self.epsilon, self.adaptive)
            return z.log_z, z.d1, z.d2
        alpha = y * mean / np.sqrt(V)
        first, second = y * hazard(alpha) / np.sqrt(V), -bend(alpha) / V
        log_z, kappa, _ = mix(float(log_ndtr(alpha[0])), self.epsilon, 2)
        return log_z, kappa * first, kappa * second + kappa * (1 - kappa) * first**2
