"""What a regressor's file adds: the units of y, the noise, and the training rows where predictions go back to them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cavity.errors import BadFile
from cavity.estimators import regression, rowwise
from cavity.estimators.fitted import Fitted
from cavity.estimators.saved import model
from cavity.estimators.saved.checks import expect, expect_factors, finite
from cavity.factors import Committee, Gaussian


def estimator() -> Any:
    """The class."""
    from cavity.estimators.regressor import GPRegressor

    return GPRegressor


def describe(fitted: Any) -> dict[str, Any]:
    """The part that is no tensor."""
    shift, scale = fitted._units
    return {"units": [shift, scale], "learnt noise": bool(fitted._fitted.factor.parameters)}


def tensors(fitted: Any) -> dict[str, Tensor]:
    """The part that is; a noise of 0 has no logarithm, and none is written."""
    log_noise = fitted._fitted.factor.log_noise.detach()
    found = {"factor.log_noise": log_noise.clone()} if log_noise.isfinite().all() else {}
    rows = fitted._training
    return found | (
        {} if rows is None else {f"rows.{name}": getattr(rows, name).clone() for name in rowwise.TENSORS}
    )


def restore(made: Any, found: dict[str, Tensor], meta: dict[str, Any]) -> Fitted:
    """The posterior, for an estimator that has its arguments."""
    regression.check_options(made)
    made._units = _units(*meta["units"])
    members = len(found["mean"]) if made.method == "bcm" else 1
    q = model.posterior(found, meta["prior"], members)
    fitted = model.restore(found, meta["prior"], made.kernel, members, q, _factor(made, found, meta))
    made._training = _rows(made, found, fitted) if made.method in regression.KEEP_ROWS else None
    return fitted


def finish(made: Any, found: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Nothing is left to do."""


def _units(shift: Any, scale: Any) -> tuple[float, float]:
    units = torch.tensor([finite(shift), finite(scale)], dtype=torch.float64)
    if not units.isfinite().all() or not units[1] > 0:
        raise BadFile(f"y would be in units of {scale!r:.40} around {shift!r:.40}.")
    return float(shift), float(scale)


def _factor(made: Any, found: dict[str, Tensor], meta: dict[str, Any]) -> Gaussian:
    learnt, likelihood = bool(meta["learnt noise"]), regression.METHODS[made.method].likelihood
    projected = likelihood.endswith("projected")
    factor = Committee(0.0, learnt) if likelihood == "committee" else Gaussian(0.0, learnt, projected)
    if "factor.log_noise" in found:
        expect("factor.log_noise", found["factor.log_noise"], [(1,)], found["mean"].dtype)
        factor.log_noise.data = found["factor.log_noise"]
    elif made.method in regression.NEEDS_NOISE:
        raise BadFile(f"there is no noise, which method={made.method!r} needs.")
    return factor


def _rows(made: Any, found: dict[str, Tensor], fitted: Fitted) -> rowwise.Rows:
    M, N, D = fitted.mean.shape[1], len(found["rows.y"]), len(fitted.prior.center)
    shapes = {"X": (N, D), "y": (N,), "weight": (N,), "a": (M, N), "lower": (M, M), "alpha": (N,)}
    tensors = {name: found[f"rows.{name}"] for name in rowwise.TENSORS}
    for name, tensor in tensors.items():
        expect(f"rows.{name}", tensor, [shapes[name]], torch.float64)
    rows = rowwise.ready(rowwise.Rows(**tensors, tol=made.cg_tol if made.method == "cg" else 0.0))
    expect_factors(**{"rows.lower": rows.lower})
    if not N or not (rows.weight > 0).all():
        raise BadFile("there are no rows, or some weigh nothing.")
    return rows
