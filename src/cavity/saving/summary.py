"""What `cavity info` prints about a model, stored in its file: reading it back needs neither torch nor a tensor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cavity.common.lazy import resolve
from cavity.common.text_tables import format_label
from cavity.prediction.regression import target_noise
from cavity.prediction.result import Result
from cavity.rows.columns.encoder import leave_unchanged


def summarise(arguments: dict[str, Any], result: Result, rows_inside: str) -> dict[str, Any]:
    """Return facts about a fitted estimator as values that JSON can hold."""
    model, prepare, pool = result.model, result.features.preparation, result.model.pool
    if prepare is None and result.features.names is not None:
        prepare = leave_unchanged([str(name) for name in result.features.names])
    n = result.features.n if prepare is None else prepare.n_features_in_
    names = [f"column {j}" for j in range(n)] if prepare is None else prepare.feature_names_in_.tolist()
    relevance = None if result.relevance is None else np.asarray(result.relevance).tolist()
    plan = resolve(result.plan)
    importance = None if result.importance is None else result.importance.tolist()
    return {
        "method": str(arguments["method"]),
        "kernel": repr(model.prior.kernel),
        "classes": [format_label(c) for c in (() if result.classes is None else result.classes)],
        "inducing_points": int(model.inducing_points.shape[-2]),
        "noise": _list_noise(result),
        "rows_inside": rows_inside,
        "n_features": n,
        "dtype": str(arguments["dtype"]).removeprefix("torch."),
        "epochs": len(result.history),
        "log_marginal_likelihood": None if math.isnan(result.evidence) else float(result.evidence),
        "evidence": result.evidence_name,
        "temperature": 1 / pool.weight,
        "calibration": result.calibration,
        "plan": None if plan is None else plan.summarise(),
        "ensemble_weights": [pool.weight, *pool.weights],
        "pool": pool.named_weights,
        "target": None if prepare is None or prepare.target_ is None else prepare.target_.name,
        "columns": None if prepare is None else dict(prepare.describe()),
        "relevance": None if relevance is None else dict(zip(names, relevance, strict=True)),
        "importance": None if importance is None else dict(zip(names, importance, strict=True)),
    }


def _list_noise(result: Result) -> Any:
    """Return the latent noise of each class, or the variance of the targets' noise in the user's units."""
    if result.classes is None:
        return target_noise(result.model) * result.units[1] ** 2
    return result.model.noises.tolist()
