"""The formulas of all kernels, each once, for torch tensors, NumPy arrays and values of
an ONNX graph. Does not load torch.

A formula is a kernel with its numbers; `prepare` computes what depends on Z alone. A
leading 1 instead of C: shared by all classes. Training replaces some of them by fused
operations with derivatives in closed form: `distance`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from cavity.common.namespaces import Array, namespace

# Cells reach the largest number to this power, in spreads: a sum of their squares stays
# finite.
CELL_POWER = 0.25
# of rows of a kernel that grows, in spreads: products of a few such kernels stay finite
ROW_REACH = 1e30
ROW_REACH_SINGLE = 1e5
Shape = Callable[..., Array]


class Formula(Protocol):
    """A kernel with its numbers."""

    def prepare(self, Z: Array) -> Any:
        """Return what `cross` needs of inducing points [C M D] or [1 M D]."""

    def cross(self, points: Any, X: Array) -> Array:
        """Return k(Z, X) at rows [n D], [C M n]."""

    def diag(self, X: Array) -> Array:
        """Return k(x, x), [C n]."""


# --- shapes: log(k/variance) as a function of the squared scaled distance ----------------------------------


def rbf(xp: Any, d2: Array) -> Array:
    """Return −½ d², of exp(−½ d²)."""
    return -0.5 * d2


def matern12(xp: Any, d2: Array) -> Array:
    """Return −d, of exp(−d)."""
    return -xp.sqrt(d2)


def matern32(xp: Any, d2: Array) -> Array:
    """Return the logarithm of (1 + √3 d) exp(−√3 d)."""
    d = math.sqrt(3.0) * xp.sqrt(d2)
    return xp.log1p(d) - d


def matern52(xp: Any, d2: Array) -> Array:
    """Return the logarithm of (1 + √5 d + 5d²/3) exp(−√5 d)."""
    d = math.sqrt(5.0) * xp.sqrt(d2)
    return xp.log1p(d + d * d / 3) - d


def rational_quadratic(xp: Any, d2: Array, alpha: Array) -> Array:
    """Return the logarithm of (1 + d²/(2α))^(−α)."""
    return -alpha * xp.log1p(d2 / (2 * alpha))


SHAPES: dict[str, Shape] = dict(
    RBF=rbf,
    Matern12=matern12,
    Matern32=matern32,
    Matern52=matern52,
    RationalQuadratic=rational_quadratic,
)


# --- distances ---------------------------------------------------------------------------------------------


class Scale(NamedTuple):
    """Centre and spread of the columns, and the hyper-parameters of a kernel with
    lengthscales.
    """

    center: Array  # [D]
    unit: Array  # [D]
    log_scale: Array  # [C D], of lengthscales in units of the spread
    log_variance: Array  # [C]


def to_units(X: Array, center: Array, unit: Array) -> Array:
    """Centre the columns and divide them by their spread.

    Far cells are limited, so that squared distances stay finite.
    """
    xp = namespace(X)
    most = xp.largest(X) ** CELL_POWER
    return xp.clip((X - center) / unit, -most, most)


class Points(NamedTuple):
    """Points u, prepared for their distances to rows v.

    Only u is divided by ℓ²: all classes share the rows, as one matrix.
    """

    weighted: Array  # [C M D], u/ℓ²
    u2: Array  # [C M], −½ |u/ℓ|²
    inverse: Array  # [C 1 D], 1/ℓ²
    half: Array  # [C D], −½/ℓ²

    def half_square_distance(self, V: Array) -> Array:
        """Return −½ d² = −½ |u|² − ½ |v|² + u·v in the metric 1/ℓ², [C M n]."""
        xp = namespace(V)
        v2 = self.half @ (V * V).T
        S = xp.add_products_(self.u2[:, :, None] + v2[:, None], self.weighted, V)
        return xp.minimum_(S, 0.0)


def prepare_points(U: Array, log_scale: Array) -> Points:
    """Prepare points [C M D] in units of the spread."""
    inverse = namespace(U).exp(-2 * log_scale)[:, None]
    weighted = U * inverse
    return Points(
        weighted, -0.5 * (U * weighted).sum(-1), inverse, -0.5 * inverse[:, 0]
    )


# --- kernels -----------------------------------------------------------------------------------------------


class StationaryFormula(NamedTuple):
    """σ² exp shape(d²),   d² = Σ_d ((z_d − x_d)/ℓ_d)²."""

    shape: Shape
    scale: Scale
    # logarithms of the shape's own hyper-parameters, each [C]
    logs: tuple[Array, ...] = ()

    def prepare(self, Z: Array) -> Points:
        return prepare_points(
            to_units(Z, self.scale.center, self.scale.unit), self.scale.log_scale
        )

    def cross(self, points: Points, X: Array) -> Array:
        return self.value(
            points.half_square_distance(to_units(X, self.scale.center, self.scale.unit))
        )

    def value(self, S: Array) -> Array:
        """Return the covariances, given S = −½ d², which is overwritten.

        The RBF takes S as it is: two passes less.
        """
        xp = namespace(S)
        own = (xp.exp(log)[:, None, None] for log in self.logs)
        if self.shape is rbf:
            log_k = S
        else:
            log_k = self.shape(xp, -2 * S, *own)
        # the variance as a term of the exponent: onnxruntime may fuse a factor into a
        # product, in single precision
        log_k += self.scale.log_variance[:, None, None]
        return xp.exp_(log_k)

    def diag(self, X: Array) -> Array:
        return ConstantFormula(self.scale.log_variance).diag(X)


class SpectrumFormula(NamedTuple):
    r"""Covariances of f with inducing values in the frequency domain: a linear model,
    f(x) = w·φ(x) with w ~ N(0, I).

        φ_m(x) = √(2σ²/M) cos(ω_m·x − b_m)        ω_m = z_m/ℓ

    The second half of z repeats the first. There b is π/2, before 0: cosines and sines,
    so |φ(x)|² = σ². φ(x)·φ(x') approaches k(x, x') as M grows if z is drawn from the
    spectral density of the kernel for ℓ = 1.
    """

    scale: Scale

    def prepare(self, Z: Array) -> Array:
        return Z * namespace(Z).exp(-self.scale.log_scale)[:, None]

    def cross(self, points: Array, X: Array) -> Array:
        xp = namespace(X)
        half = points.shape[1] // 2
        phase = xp.constant((0.0,) * half + (math.pi / 2,) * half, points)
        U = to_units(X, self.scale.center, self.scale.unit)
        angle = xp.products(points, U) - phase[:, None]
        size = xp.exp(0.5 * self.scale.log_variance)[:, None, None] / math.sqrt(half)
        return xp.cos(angle) * size

    def diag(self, X: Array) -> Array:
        return ConstantFormula(self.scale.log_variance).diag(X)


class LinearFormula(NamedTuple):
    """σ² g(z) g(x) Σ_d (z_d − o_d)(x_d − o_d)/ℓ_d², with g = 1 unless the functions
    fade.

    If they do, with v = x − o in spreads and R the distance that training rows reach,
    for x ≠ z,

        g(x) = exp(−(q − 1)²)/√q        q = max(|v|²/R², 1)        k(x, x) = σ² Σ_d v_d²/(q ℓ_d²)

    The variance beyond R stays what it is at R: there f is independent noise, and the
    linear function is not trusted.
    """

    scale: Scale
    reach: float = ROW_REACH
    fade: Array | None = None  # [D 1], 1/R² everywhere; None: functions do not fade

    def to_units(self, X: Array) -> Array:
        """Return rows in spreads from the centre; those beyond `reach` are moved
        straight towards it, others keep their bits.
        """
        xp = namespace(X)
        (center, unit, *_) = self.scale
        V = (X - center) / unit
        if not xp.may_exceed(V, self.reach):
            return V
        largest = xp.largest(X)
        off = xp.clip(X - center, -largest, largest)
        size = xp.clip(xp.max(xp.abs(off / unit)), self.reach, largest)
        return off * (self.reach / size) / unit

    def features(self, X: Array) -> Array:
        """Return g(x) v."""
        V = self.to_units(X)
        if self.fade is None:
            return V
        xp = namespace(X)
        q = xp.maximum((V * V) @ self.fade, 1.0)
        return V * (xp.exp(-((q - 1) * (q - 1))) / xp.sqrt(q))

    def log_weight(self) -> Array:
        """Return log(σ²/ℓ²), [C D]."""
        return self.scale.log_variance[:, None] - 2 * self.scale.log_scale

    def prepare(self, Z: Array) -> Array:
        return self.features(Z) * namespace(Z).exp(self.log_weight())[:, None]

    def cross(self, points: Array, X: Array) -> Array:
        return namespace(X).products(points, self.features(X))

    def diag(self, X: Array) -> Array:
        xp = namespace(X)
        V = self.to_units(X)
        square = V * V
        if self.fade is not None:
            square = square / xp.maximum(square @ self.fade, 1.0)  # v²/q, [n D]
        return xp.exp(self.log_weight()) @ square.T


class ConstantFormula(NamedTuple):
    """σ²."""

    log_variance: Array  # [C]

    def prepare(self, Z: Array) -> Array:
        return self.diag(Z)[..., None]  # [C M 1]

    def cross(self, points: Array, X: Array) -> Array:
        return namespace(X).repeat_rows(points, X)

    def diag(self, X: Array) -> Array:
        xp = namespace(X)
        return xp.repeat_rows(xp.exp(self.log_variance)[:, None], X)


class PairFormula(NamedTuple):
    """The sum or the product of two kernels."""

    combine: Callable[[Array, Array], Array]
    first: Formula
    second: Formula

    def prepare(self, Z: Array) -> tuple[Any, Any]:
        return self.first.prepare(Z), self.second.prepare(Z)

    def cross(self, points: tuple[Any, Any], X: Array) -> Array:
        return self.combine(
            self.first.cross(points[0], X), self.second.cross(points[1], X)
        )

    def diag(self, X: Array) -> Array:
        return self.combine(self.first.diag(X), self.second.diag(X))
