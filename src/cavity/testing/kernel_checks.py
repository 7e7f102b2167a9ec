"""Check a kernel: shapes, finite values, symmetry, positive definiteness, derivatives,
and the same values in torch, NumPy and ONNX.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cavity.common.column_statistics import summarize
from cavity.common.namespaces import NUMPY
from cavity.common.torch_namespace import TORCH
from cavity.common.types import Floats
from cavity.engine.kernels import Kernel, Stationary
from cavity.engine.kernels.base import CALLS, CalledFormula, formula_of
from cavity.engine.kernels.base import check_kernel as require_kernel
from cavity.errors import BadInput, BadResult
from cavity.testing.results import (
    CheckReport,
    find_slope,
    require_finite,
    require_shape,
    require_tensor,
    run_graph,
    to_numpy,
)

ROWS = 40
POINTS = 7
LATENT = 2  # latent functions, each with hyper-parameters of its own
SLOPES = 6  # entries of each parameter that are compared with differences
# rounding of covariances, relative to the largest
ROUNDING = 1e-9


def check_kernel(kernel: Any, X: Any = None) -> CheckReport:
    """Check a kernel of your own, and say what was checked.

    Parameters
    ----------
    kernel : cavity.kernels.Kernel, torch.nn.Module or object
        Kernel with its arguments. It is copied.
    X : array-like of shape (n, D) or None, default=None
        Rows on which to check it, at least 16. If None, use 40 random rows with three
        columns.

    Returns
    -------
    CheckReport
        Laws that hold, and what the kernel does not offer.

    Raises
    ------
    cavity.errors.BadResult
        If a method returns a wrong result. The message names class, method and
        numbers.

    Examples
    --------
    >>> from cavity.kernels import RBF
    >>> from cavity.testing import check_kernel
    >>> report = check_kernel(RBF())
    >>> report.name, "full is symmetric" in report.passed
    ('RBF', True)
    """
    require_kernel(kernel)
    rows = _read_rows(X)
    kernel = copy.deepcopy(kernel)
    if isinstance(kernel, Kernel):
        columns = summarize(rows, np.ones(len(rows)), np.random.default_rng(0))
        kernel.bind(LATENT, columns)
    if isinstance(kernel, nn.Module):
        kernel.double()

    report = CheckReport(type(kernel).__name__)
    places = torch.tensor(rows)
    # between rows: at a distance of 0 some kernels have no derivative
    between = 0.6 * places[:-1] + 0.4 * places[1:]
    points = torch.stack([between[:POINTS], between[POINTS : 2 * POINTS]])
    _check_shapes_of_parts(kernel, report)
    with torch.no_grad():
        screen_kernel(kernel, points, places, LATENT)
        report.passed.append("full, cross and diag: shapes and finite values")
        _check_definite(kernel, places, report)
        _check_agreement(kernel, points, report)
    _check_derivatives(kernel, points, places, report)
    _check_formula(kernel, points, places, report)
    return report


def _read_rows(X: Any) -> Floats:
    if X is None:
        return np.random.default_rng(0).normal(size=(ROWS, 3))

    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or len(rows) <= 2 * POINTS or not np.isfinite(rows).all():
        raise BadInput(
            f"X of shape {rows.shape} must be finite numbers of shape (n, D), with n "
            f"above {2 * POINTS}."
        )

    return rows


def screen_kernel(kernel: Any, Z: Tensor, X: Tensor, n_latent: int) -> None:
    """Raise BadResult if `full`, `cross` or `diag` has a wrong shape, NaN or infinity.

    This is quick: a fit does it, too.
    """
    for part in _find_parts(kernel):
        name = type(part).__name__
        M = Z.shape[-2]
        sizes = (n_latent, 1)
        full = [(C, M, M) for C in sizes]
        cross = [(C, M, len(X)) for C in sizes]
        diag = [(C, len(X)) for C in sizes]
        require_tensor(f"{name}.full", part.full(Z), *full)
        require_tensor(f"{name}.cross", part.cross(Z, X), *cross)
        require_tensor(f"{name}.diag", part.diag(X), *diag)


def _find_parts(kernel: Any) -> list[Any]:
    """Return the kernels inside a sum or product first, then the whole."""
    if not isinstance(kernel, nn.Module):
        return [kernel]

    parts = [m for m in kernel.modules() if all(hasattr(m, call) for call in CALLS)]
    return parts[::-1]


def _check_shapes_of_parts(kernel: Any, report: CheckReport) -> None:
    """Check `shape` of stationary kernels: log k/variance, at all distances."""
    for part in _find_parts(kernel):
        if not isinstance(part, Stationary):
            continue

        what = f"{type(part).__name__}.shape"
        distances = np.concatenate([[0.0], np.geomspace(1e-8, 1e6, 399)])
        d2 = torch.tensor(distances).expand(LATENT, 1, -1).clone()
        own = [getattr(part, f"log_{name}").exp()[:, None, None] for name in part.own]
        with torch.no_grad():
            log_k = part.shape(TORCH, d2, *own)
        require_shape(what, log_k, tuple(d2.shape))
        require_finite(what, log_k[0], "distances")
        start = to_numpy(log_k[..., 0]).flat[0]
        if abs(start) > ROUNDING:
            raise BadResult(f"{what} returned {start:.6g} for d² = 0, expected 0.")

        report.passed.append(f"shape of {type(part).__name__} is finite, and 0 at 0")


def _check_definite(kernel: Any, X: Tensor, report: CheckReport) -> None:
    """k(X, X) is symmetric and has no negative eigenvalue; k(x, x) is its diagonal."""
    name = report.name
    full = to_numpy(kernel.full(X[None]))
    diag = to_numpy(kernel.diag(X))
    size = max(float(np.abs(full).max()), 1e-300)
    gap = float(np.abs(full - full.swapaxes(1, 2)).max())
    if gap > ROUNDING * size:
        raise BadResult(f"{name}.full is not symmetric: entries differ by {gap:.6g}.")

    report.passed.append("full is symmetric")
    least = float(np.linalg.eigvalsh(full).min())
    if least < -len(X) * ROUNDING * size:
        raise BadResult(
            f"{name}.full is not positive semi-definite: its smallest eigenvalue is "
            f"{least:.6g} on {len(X)} rows."
        )

    report.passed.append("full is positive semi-definite")
    own = np.diagonal(full, axis1=1, axis2=2)
    lack = own - diag
    if float(lack.max()) > ROUNDING * size:
        at = np.unravel_index(int(lack.argmax()), lack.shape)
        raise BadResult(
            f"{name}.diag returned {np.broadcast_to(diag, lack.shape)[at]:.6g} where "
            f"the diagonal of full is {own[at]:.6g}."
        )

    excess = float(-lack.min())
    if excess > ROUNDING * size:
        report.skipped["diag equals the diagonal of full"] = (
            f"it is larger by up to {excess:.3g}, which counts as noise"
        )
    else:
        report.passed.append("diag equals the diagonal of full")


def _check_agreement(kernel: Any, Z: Tensor, report: CheckReport) -> None:
    """k(Z, Z) by `full` and by `cross` are the same, also if latent functions share Z."""
    full = to_numpy(kernel.full(Z[:1]))
    cross = to_numpy(kernel.cross(Z[:1], Z[0]))
    size = float(np.abs(full).max())
    report.check_close(
        "cross at Z equals full", cross, full, rtol=0, atol=1e-7 * size + ROUNDING
    )
    both = np.broadcast_to(to_numpy(kernel.full(Z)), (LATENT, POINTS, POINTS))
    alone = np.broadcast_to(full, (LATENT, POINTS, POINTS))
    report.check_close(
        "full of one latent function alone",
        both[0],
        alone[0],
        rtol=0,
        atol=ROUNDING * size,
    )


def _check_derivatives(kernel: Any, Z: Tensor, X: Tensor, report: CheckReport) -> None:
    """Derivatives by autograd are differences of the values, in parameters and in Z."""
    learnt: dict[str, Tensor] = {}
    if isinstance(kernel, nn.Module):
        named = kernel.named_parameters()
        learnt = {name: p for name, p in named if p.requires_grad}
    if not learnt:
        report.skipped["derivatives in parameters"] = "it has no learnt parameter"
    inputs = Z.clone().requires_grad_()
    weights = np.random.default_rng(1)

    calls: dict[str, Callable[[], Tensor]] = {
        "full": lambda: kernel.full(inputs),
        "cross": lambda: kernel.cross(inputs, X),
        "diag": lambda: kernel.diag(X),
    }
    for call, compute in calls.items():
        weight = torch.tensor(weights.normal(size=tuple(compute().shape)))
        values = dict(learnt)
        if call != "diag":
            values["Z"] = inputs
        _compare_slopes(report, call, partial(_add_up, compute, weight), values)


def _add_up(compute: Callable[[], Tensor], weight: Tensor) -> Tensor:
    return (weight * compute()).sum()


def _compare_slopes(
    report: CheckReport,
    call: str,
    compute: Callable[[], Tensor],
    values: dict[str, Tensor],
) -> None:
    total = compute()
    if not total.requires_grad:
        report.skipped[f"{call}: derivatives"] = "autograd does not reach it"
        return

    slopes = torch.autograd.grad(
        total, list(values.values()), allow_unused=True, materialize_grads=True
    )
    for (name, value), slope in zip(values.items(), slopes, strict=True):
        places = range(0, value.numel(), max(1, value.numel() // SLOPES))
        found = [float(slope.flatten()[at]) for at in places]
        wanted = [float(find_slope(compute, value, at)) for at in places]
        report.check_close(
            f"{call}: derivative in {name}", found, wanted, rtol=1e-4, atol=1e-6
        )


def _check_formula(kernel: Any, Z: Tensor, X: Tensor, report: CheckReport) -> None:
    """The formula in NumPy and in ONNX has the values of torch."""
    formula = formula_of(kernel, NUMPY)
    if isinstance(formula, CalledFormula):
        why = (
            "it has no formula(xp): predictions need torch, and there is no ONNX graph"
        )
        report.skipped["formula in NumPy and ONNX"] = why
        return

    points = formula.prepare(Z.numpy().copy())
    rows = X.numpy().copy()
    with torch.no_grad():
        wanted = {"cross": kernel.cross(Z, X), "diag": kernel.diag(X)}
    shapes: dict[str, list[str | int]] = {"cross": [LATENT, POINTS, "n"]}
    shapes["diag"] = ["c", "n"]
    calls: dict[str, Callable[[Any], Any]] = {
        "cross": lambda rows: formula.cross(points, rows),
        "diag": formula.diag,
    }
    for call, compute in calls.items():
        law = f"formula in NumPy: {call}"
        report.check_close(law, compute(rows), wanted[call], rtol=1e-7, atol=1e-9)
        found = run_graph(compute, {"X": rows}, shapes[call])
        law = f"formula in ONNX: {call}"
        if isinstance(found, str):
            report.skipped[law] = found
        else:
            report.check_close(law, found, wanted[call], rtol=1e-6, atol=1e-8)
