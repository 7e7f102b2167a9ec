"""Scaled squared distances between all pairs of points, with derivatives in closed form.

A matrix product gives all distances at once: −½|u|² − ½|v|² + u·v. Its error is that of |u|², so it loses all digits for two near
points that are both far from the centre. Such pairs are computed from differences, except in training steps: finding them reads
a value, and a step reads none, so that a GPU never waits for the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cavity.common.linalg import column_sum, times_transpose
from cavity.kernels import formulas
from cavity.kernels.formulas import Points, prepare_points

# Lengthscales from the centre beyond which pairs are computed from differences: there the product errs by about 1e-8 (5e-3).
FAR = {torch.float64: formulas.FAR, torch.float32: 300.0}


def half_square_distance(U: Tensor, V: Tensor | None, log_scale: Tensor, careful: bool = True) -> Tensor:
    r"""−½ Σ_d ((u_d − v_d)/ℓ_d)² for every pair, [C M N].

    U is [C M D] or [1 M D]; V is [N D]; log ℓ is [C D] or [1 D]. A leading 1 is shared by all classes. Without V: pairs within
    U, exactly zero on the diagonal and without a gradient there, which square roots would magnify. `careful`: compute pairs
    far from the centre from differences.
    """
    return _HalfSquareDistance.apply(U, V, log_scale, careful)  # type: ignore[no-any-return, no-untyped-call]


def gaussian_pair(U: Tensor, V: Tensor, log_scale: Tensor, log_variance: Tensor) -> tuple[Tensor, Tensor]:
    """Return σ² exp(−½ d²) within U, [C M M], and between U and V, [C M N]: all that a step needs, as one operation."""
    return _GaussianPair.apply(U, V, log_scale, log_variance)  # type: ignore[no-any-return, no-untyped-call]


class _HalfSquareDistance(torch.autograd.Function):
    """S = −½ d² within U, or between U and V."""

    @staticmethod
    def forward(ctx: Any, U: Tensor, V: Tensor | None, log_scale: Tensor, careful: bool) -> Tensor:
        points = prepare_points(U, log_scale)
        ctx.save_for_backward(U, V, points.inverse)
        S, v2 = (_within(U, points), points.u2) if V is None else points.half_square_distance(V)
        ctx.far = _find_far_pairs(points.u2, v2) if careful else None
        _place_far(S, U, U if V is None else V[None], points.inverse, ctx.far)
        if V is None:
            S.diagonal(dim1=-2, dim2=-1).zero_()
        return S

    @staticmethod
    def backward(ctx: Any, E: Tensor) -> tuple[Tensor | None, ...]:
        U, V, inverse = ctx.saved_tensors
        E, direct = _split_far(E, U, U if V is None else V[None], inverse, ctx.far)
        if V is None:
            return *_scaled(_pull_within(E, U), None, U, None, inverse, direct), None
        T, R, columns = _pull_between(E, U, V)
        V_bar = _rows_bar(E, U, V, inverse, columns) if ctx.needs_input_grad[1] else None
        return *_scaled(T, R, U, V_bar, inverse, direct), None


class _GaussianPair(torch.autograd.Function):
    """σ² exp(S) within U and between U and V: the cotangent of S is the cotangent of K times K."""

    @staticmethod
    def forward(
        ctx: Any, U: Tensor, V: Tensor, log_scale: Tensor, log_variance: Tensor
    ) -> tuple[Tensor, Tensor]:
        points, offset = prepare_points(U, log_scale), log_variance[:, None, None]
        within = _within(U, points).add_(offset).exp_()
        between = points.half_square_distance(V)[0].add_(offset).exp_()
        ctx.save_for_backward(U, V, points.inverse, within, between)
        return within, between

    @staticmethod
    def backward(ctx: Any, within_bar: Tensor, between_bar: Tensor) -> tuple[Tensor | None, ...]:
        U, V, inverse, within, between = ctx.saved_tensors
        E, F = within_bar * within, between_bar * between
        variance_bar = E.sum((-2, -1)) + F.sum((-2, -1))
        T, R, columns = _pull_between(F, U, V)
        V_bar = _rows_bar(F, U, V, inverse, columns) if ctx.needs_input_grad[1] else None
        return *_scaled(T.add_(_pull_within(E, U)), R, U, V_bar, inverse), variance_bar


class FarPairs(NamedTuple):
    """Rows of U and of V whose distances are computed from differences."""

    left: Tensor
    right: Tensor

    @property
    def place(self) -> tuple[slice, Tensor, Tensor]:
        """The pairs as an index into [C M N]."""
        return slice(None), self.left[:, None], self.right


def _find_far_pairs(u2: Tensor, v2: Tensor) -> FarPairs | None:
    """Find rows that are both far from the centre; reads a value."""
    most = -0.5 * FAR[u2.dtype] ** 2
    if not bool(u2.amin() < most):
        return None
    left, right = ((x < most).any(0).nonzero()[:, 0] for x in (u2, v2))
    return FarPairs(left, right) if len(right) else None


def _differences(U: Tensor, V: Tensor, far: FarPairs) -> Iterator[Tensor]:
    """Yield u − v of the far pairs, one column at a time: [C m n]."""
    u, v = U[:, far.left], V[:, far.right]
    for d in range(U.shape[-1]):
        yield u[:, :, None, d] - v[:, None, :, d]


def _place_far(S: Tensor, U: Tensor, V: Tensor, inverse: Tensor, far: FarPairs | None) -> None:
    """Replace S of the far pairs by −½ Σ (u − v)²/ℓ²."""
    if far is None:
        return
    direct = torch.zeros_like(S[far.place])
    for d, apart in enumerate(_differences(U, V, far)):
        direct.addcmul_(apart * inverse[:, :, d, None], apart, value=-0.5)
    S[far.place] = direct


class DirectPull(NamedTuple):
    """What the far pairs add to the gradients, before division by ℓ²."""

    pairs: FarPairs
    U: Tensor  # [C m D], ℓ² ∂u of the left rows
    V: Tensor  # [C n D], ℓ² ∂v of the right rows
    scale: Tensor  # [C D], ℓ² ∂log ℓ
    own: bool  # whether V is U


def _split_far(
    E: Tensor, U: Tensor, V: Tensor, inverse: Tensor, far: FarPairs | None
) -> tuple[Tensor, DirectPull | None]:
    """Return the cotangent of S without the far pairs, and what these add: ∂u = −E (u − v)/ℓ²,  ∂log ℓ = E (u − v)²/ℓ²."""
    if far is None:
        return E, None
    own, block = U is V, E[far.place]
    E = E.clone()
    E[far.place] = 0.0
    left, right, scale = [], [], []
    for apart in _differences(U, V, far):
        pull = block * apart
        left.append(-pull.sum(-1))
        right.append(pull.sum(-2))
        scale.append((pull * apart).sum((-2, -1)))
    return E, DirectPull(far, torch.stack(left, -1), torch.stack(right, -1), torch.stack(scale, -1), own)


def _within(U: Tensor, points: Points) -> Tensor:
    """S = −½ |u|² − ½ |u'|² + u·u' in the metric 1/ℓ², by one matrix product."""
    S = times_transpose(points.weighted, U.expand(len(points.weighted), -1, -1))
    S.add_(points.u2[:, :, None]).add_(points.u2[:, None, :]).clamp_(max=0.0)
    S.diagonal(dim1=-2, dim2=-1).zero_()
    return S


def _pull_within(E: Tensor, U: Tensor) -> Tensor:
    """ℓ² ∂u = A u − s u [C M D]: A = E + Eᵀ without its diagonal, s its row sums. E is the cotangent of S."""
    A = E + E.mT
    A.diagonal(dim1=-2, dim2=-1).zero_()
    return torch.bmm(A, U.expand(len(A), -1, -1)).addcmul_(A.sum(-1)[..., None], U, value=-1.0)


def _pull_between(E: Tensor, U: Tensor, V: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """T = ℓ² ∂u = E v − s u [C M D];  R = −ℓ² Σ v ∂v = Σ s v² − Σ u·E v [C D];  E's column sums [C N]."""
    EV = (E.flatten(0, 1) @ V).view(len(E), -1, V.shape[-1])
    columns = column_sum(E)
    R = columns @ V.square() - (U * EV).sum(-2)
    return EV.addcmul_(E.sum(-1)[..., None], U, value=-1.0), R, columns


def _rows_bar(E: Tensor, U: Tensor, V: Tensor, inverse: Tensor, columns: Tensor) -> Tensor:
    """∂v = (Eᵀu − s v)/ℓ², [N D], summed over classes, which share the rows."""
    return ((E.mT @ U - columns[..., None] * V) * inverse).sum(0)


def _scaled(
    T: Tensor,
    R: Tensor | None,
    U: Tensor,
    V_bar: Tensor | None,
    inverse: Tensor,
    far: DirectPull | None = None,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """∂u, ∂v, ∂log ℓ. A distance depends on u/ℓ and v/ℓ alone, hence ∂log ℓ = −Σ u ∂u − Σ v ∂v. Far pairs come on top."""
    radial = (U * T).sum(-2)
    scale = -radial if R is None else R - radial
    if far is not None:
        T[:, far.pairs.left] += far.U
        scale = scale + far.scale
        if far.own:
            T[:, far.pairs.right] += far.V
        elif V_bar is not None:
            V_bar[far.pairs.right] += (far.V * inverse).sum(0)
    return sum_shared(T * inverse, U), V_bar, sum_shared(scale * inverse[:, 0], inverse)


def sum_shared(gradient: Tensor, argument: Tensor) -> Tensor:
    """Sum a gradient over classes if they share the argument."""
    return gradient.sum(0, keepdim=True) if len(argument) < len(gradient) else gradient
