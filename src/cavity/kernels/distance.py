"""Scaled squared distances between all pairs of points, with derivatives in closed form.

A matrix product gives all distances at once: −½|u|² − ½|v|² + u·v. Its error is that of |u|²: 1e-8 for two near points that are
both 1e4 lengthscales from the centre.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cavity.common.linalg import column_sum, times_transpose
from cavity.kernels.formulas import Points, prepare_points, to_units


def half_square_distance(U: Tensor, V: Tensor | None, log_scale: Tensor) -> Tensor:
    r"""−½ Σ_d ((u_d − v_d)/ℓ_d)² for every pair, [C M N].

    U is [C M D] or [1 M D]; V is [N D]; log ℓ is [C D] or [1 D]. A leading 1 is shared by all classes. Without V: pairs within
    U, exactly zero on the diagonal and without a gradient there, which square roots would magnify.
    """
    return _HalfSquareDistance.apply(U, V, log_scale)  # type: ignore[no-untyped-call]


def gaussian_pair(
    Z: Tensor, X: Tensor, center: Tensor, unit: Tensor, log_scale: Tensor, log_variance: Tensor
) -> tuple[Tensor, Tensor]:
    """Return σ² exp(−½ d²) within Z, [C M M], and between Z and X, [C M N]: all that a step needs, as one operation."""
    return _GaussianPair.apply(Z, X, center, unit, log_scale, log_variance)  # type: ignore[no-untyped-call]


class _HalfSquareDistance(torch.autograd.Function):
    """S = −½ d² within U, or between U and V."""

    @staticmethod
    def forward(ctx: Any, U: Tensor, V: Tensor | None, log_scale: Tensor) -> Tensor:
        points = prepare_points(U, log_scale)
        ctx.save_for_backward(U, V, points.inverse)
        return _within(U, points) if V is None else points.half_square_distance(V)

    @staticmethod
    def backward(ctx: Any, E: Tensor) -> tuple[Tensor | None, ...]:
        U, V, inverse = ctx.saved_tensors
        if V is None:
            return _scaled(_pull_within(E, U), None, U, None, inverse)
        T, R, columns = _pull_between(E, U, V)
        V_bar = _rows_bar(E, U, V, inverse, columns) if ctx.needs_input_grad[1] else None
        return _scaled(T, R, U, V_bar, inverse)


class _GaussianPair(torch.autograd.Function):
    """σ² exp(S) within Z and between Z and X: the cotangent of S is the cotangent of K times K."""

    @staticmethod
    def forward(
        ctx: Any, Z: Tensor, X: Tensor, center: Tensor, unit: Tensor, log_scale: Tensor, log_variance: Tensor
    ) -> tuple[Tensor, Tensor]:
        U, V = (to_units(points, center, unit) for points in (Z, X))
        points, offset = prepare_points(U, log_scale), log_variance[:, None, None]
        within = _within(U, points).add_(offset).exp_()
        between = points.half_square_distance(V).add_(offset).exp_()
        ctx.save_for_backward(U, V, unit, points.inverse, within, between)
        return within, between

    @staticmethod
    def backward(ctx: Any, within_bar: Tensor, between_bar: Tensor) -> tuple[Tensor | None, ...]:
        U, V, unit, inverse, within, between = ctx.saved_tensors
        E, F = within_bar * within, between_bar * between
        variance_bar = E.sum((-2, -1)) + F.sum((-2, -1))
        T, R, columns = _pull_between(F, U, V)
        X_bar = _rows_bar(F, U, V, inverse, columns) / unit if ctx.needs_input_grad[1] else None
        U_bar, X_bar, scale_bar = _scaled(T.add_(_pull_within(E, U)), R, U, X_bar, inverse)
        return U_bar / unit, X_bar, None, None, scale_bar, variance_bar


def _within(U: Tensor, points: Points) -> Tensor:
    """S = −½ |u|² − ½ |u'|² + u·u' in the metric 1/ℓ², by one matrix product."""
    S = times_transpose(points.weighted, U.expand(points.weighted.shape[0], -1, -1))
    S.add_(points.u2[:, :, None]).add_(points.u2[:, None, :]).clamp_(max=0.0)
    S.diagonal(dim1=-2, dim2=-1).zero_()
    return S


def _pull_within(E: Tensor, U: Tensor) -> Tensor:
    """ℓ² ∂u = A u − s u [C M D]: A = E + Eᵀ without its diagonal, s its row sums. E is the cotangent of S."""
    A = E + E.mT
    A.diagonal(dim1=-2, dim2=-1).zero_()
    return torch.bmm(A, U.expand(A.shape[0], -1, -1)).addcmul_(A.sum(-1)[..., None], U, value=-1.0)


def _pull_between(E: Tensor, U: Tensor, V: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """T = ℓ² ∂u = E v − s u [C M D];  R = −ℓ² Σ v ∂v = Σ s v² − Σ u·E v [C D];  E's column sums [C N]."""
    EV = (E.flatten(0, 1) @ V).view(E.shape[0], *U.shape[1:])
    columns = column_sum(E)
    R = columns @ V.square() - (U * EV).sum(-2)
    return EV.addcmul_(E.sum(-1)[..., None], U, value=-1.0), R, columns


def _rows_bar(E: Tensor, U: Tensor, V: Tensor, inverse: Tensor, columns: Tensor) -> Tensor:
    """∂v = (Eᵀu − s v)/ℓ², [N D], summed over classes, which share the rows."""
    return ((E.mT @ U - columns[..., None] * V) * inverse).sum(0)


def _scaled(
    T: Tensor, R: Tensor | None, U: Tensor, V_bar: Tensor | None, inverse: Tensor
) -> tuple[Tensor, Tensor | None, Tensor]:
    """∂u, ∂v, ∂log ℓ. A distance depends on u/ℓ and v/ℓ alone, hence ∂log ℓ = −Σ u ∂u − Σ v ∂v."""
    radial = (U * T).sum(-2)
    scale = -radial if R is None else R - radial
    return sum_shared(T * inverse, U), V_bar, sum_shared(scale * inverse[:, 0], inverse)


def sum_shared(gradient: Tensor, argument: Tensor) -> Tensor:
    """Sum a gradient over classes if they share the argument."""
    return gradient.sum(0, keepdim=True) if argument.shape[0] < gradient.shape[0] else gradient
