"""The formulas of all kernels, for torch tensors, NumPy arrays and ONNX graphs.

A formula is a kernel with its numbers; `prepare` computes what depends on Z alone. A
leading 1 instead of C means that all classes share the value. Training replaces some
formulas by fused operations with derivatives in closed form: see `distance`. This
module does not load torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from cavity.common.namespaces import Array, namespace

# Cells are at most the largest number to this power, in spreads: a sum of their squares
# stays finite.
CELL_POWER = 0.25
# Rows of a kernel that grows are at most this far, in spreads: products of a few such
# kernels stay finite.
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


# --- shapes: log(k/variance) as a function of the squared scaled distance -------------


def rbf(xp: Any, d2: Array) -> Array:
    """Return the logarithm of exp(−½ d²)."""
    return -0.5 * d2


def matern12(xp: Any, d2: Array) -> Array:
    """Return the logarithm of exp(−d)."""
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


# --- distances ------------------------------------------------------------------------


class Scale(NamedTuple):
    """Units of the columns, and hyper-parameters of a kernel with lengthscales."""

    center: Array  # [D]
    unit: Array  # [D], spread
    log_scale: Array  # [C D], logarithms of lengthscales in units of the spread
    log_variance: Array  # [C]

    def to_units(self, X: Array) -> Array:
        return to_units(X, self.center, self.unit)


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
    u2 = -0.5 * (U * weighted).sum(-1)
    return Points(weighted, u2, inverse, -0.5 * inverse[:, 0])


# --- kernels --------------------------------------------------------------------------


class StationaryFormula(NamedTuple):
    """σ² exp shape(d²),   d² = Σ_d ((z_d − x_d)/ℓ_d)²."""

    shape: Shape
    scale: Scale
    # logarithms of the shape's own hyper-parameters, each [C]
    logs: tuple[Array, ...] = ()

    def prepare(self, Z: Array) -> Points:
        return prepare_points(self.scale.to_units(Z), self.scale.log_scale)

    def cross(self, points: Points, X: Array) -> Array:
        return self.value(points.half_square_distance(self.scale.to_units(X)))

    def value(self, S: Array) -> Array:
        """Return the covariances, given S = −½ d², which is overwritten.

        The RBF takes S as it is, which saves two passes.
        """
        xp = namespace(S)
        log_k = S
        if self.shape is not rbf:
            own = (xp.exp(log)[:, None, None] for log in self.logs)
            log_k = self.shape(xp, -2 * S, *own)
        # the variance is a term of the exponent: onnxruntime may fuse a factor into a
        # product, in single precision
        log_k += self.scale.log_variance[:, None, None]
        return xp.exp_(log_k)

    def diag(self, X: Array) -> Array:
        return ConstantFormula(self.scale.log_variance).diag(X)


class SpectrumFormula(NamedTuple):
    r"""Covariances of f with inducing values in the frequency domain.

    The model is linear, f(x) = w·φ(x) with w ~ N(0, I).

        φ_m(x) = √(2σ²/M) cos(ω_m·x − b_m)        ω_m = z_m/ℓ

    The second half of z repeats the first. The first half has b = 0, a cosine, and the
    second b = π/2, a sine, so |φ(x)|² = σ². As M grows, φ(x)·φ(x') approaches k(x, x')
    if z is drawn from the spectral density of the kernel for ℓ = 1.
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
    """σ² g(z) g(x) Σ_d (z_d − o_d)(x_d − o_d)/ℓ_d², where g = 1 if nothing fades.

    Otherwise, with v = x − o in spreads and R the distance that training rows reach,
    for x ≠ z,

        g(x) = exp(−(q − 1)²)/√q        q = max(|v|²/R², 1)
        k(x, x) = σ² Σ_d v_d²/(q ℓ_d²)

    The variance beyond R stays what it is at R: there f is independent noise, and the
    linear function is not trusted.
    """

    scale: Scale
    reach: float = ROW_REACH
    fade: Array | None = None  # [D 1], 1/R² everywhere; None if functions do not fade

    def to_units(self, X: Array) -> Array:
        """Return rows in spreads from the centre.

        Rows beyond `reach` are moved straight towards it; others keep their bits.
        """
        xp = namespace(X)
        center = self.scale.center
        unit = self.scale.unit
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
        over = q - 1
        return V * (xp.exp(-(over * over)) / xp.sqrt(q))

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


class PeriodicFormula(NamedTuple):
    """σ² exp(Σ_d (cos δ_d − 1)/ℓ_d²),   δ_d = 2π (z_d − x_d)/p_d.

    With the features (cos u, sin u), u = 2π x/p, it is an RBF.
    """

    scale: Scale  # lengthscales have no unit
    log_period: Array  # [C D], in units of the spread

    def features(self, X: Array) -> Array:
        """Return cos u and sin u, [C n 2D]."""
        xp = namespace(X)
        V = to_units(X, self.scale.center, self.scale.unit)
        turn = 2 * math.pi * namespace(self.log_period).exp(-self.log_period)[:, None]
        u = V * turn
        return xp.concat([xp.cos(u), xp.sin(u)])

    def weight(self) -> Array:
        """Return 1/ℓ², [C 1 D]."""
        xp = namespace(self.log_period)
        return xp.exp(-2 * self.scale.log_scale)[:, None]

    def prepare(self, Z: Array) -> tuple[Array, Array]:
        """Return the weighted features, and what makes the covariance σ² at δ = 0."""
        weight = self.weight()
        both = namespace(Z).concat([weight, weight])
        top = self.scale.log_variance[:, None, None] - weight.sum(-1)[..., None]
        return self.features(Z) * both, top

    def cross(self, points: tuple[Array, Array], X: Array) -> Array:
        xp = namespace(X)
        weighted, top = points
        return xp.exp(weighted @ xp.swap(self.features(X)) + top)

    def diag(self, X: Array) -> Array:
        return ConstantFormula(self.scale.log_variance).diag(X)


class ColumnsFormula(NamedTuple):
    """A formula for some of the columns of rows."""

    formula: Formula
    index: Array  # numbers of the columns

    def prepare(self, Z: Array) -> Any:
        return self.formula.prepare(Z[..., self.index])

    def cross(self, points: Any, X: Array) -> Array:
        return self.formula.cross(points, X[..., self.index])

    def diag(self, X: Array) -> Array:
        return self.formula.diag(X[..., self.index])


class PairFormula(NamedTuple):
    """The sum or the product of two kernels."""

    combine: Callable[[Array, Array], Array]
    first: Formula
    second: Formula

    def prepare(self, Z: Array) -> tuple[Any, Any]:
        return self.first.prepare(Z), self.second.prepare(Z)

    def cross(self, points: tuple[Any, Any], X: Array) -> Array:
        first, second = points
        return self.combine(self.first.cross(first, X), self.second.cross(second, X))

    def diag(self, X: Array) -> Array:
        return self.combine(self.first.diag(X), self.second.diag(X))
