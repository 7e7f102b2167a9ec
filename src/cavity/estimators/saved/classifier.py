"""What a classifier's file adds: labels, the likelihood by name, and what `partial_fit` continues from."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cavity.errors import BadFile, BadOption
from cavity.estimators.fitted import Fitted
from cavity.estimators.plain import pack_labels, unpack_labels
from cavity.estimators.saved import growing, model
from cavity.factors import (
    BinaryProbit,
    Jaakkola,
    Likelihood,
    Logistic,
    LogisticPoint,
    ProbitPairs,
    RobustBinary,
    RobustMax,
    Softmax,
    Taylor,
)

FACTORS: dict[str, type[Likelihood]] = {
    kind.__name__: kind
    for kind in (
        BinaryProbit,
        ProbitPairs,
        RobustBinary,
        RobustMax,
        Logistic,
        LogisticPoint,
        Jaakkola,
        Taylor,
        Softmax,
    )
}


def estimator() -> Any:
    """The class."""
    from cavity.estimators.classifier import GPClassifier

    return GPClassifier


def describe(fitted: Any) -> dict[str, Any]:
    """The part that is no tensor."""
    return {
        "classes": pack_labels(fitted.classes_),
        "factor": _factor_name(fitted._fitted.factor),
        "growing": growing.describe(fitted),
    }


def tensors(fitted: Any) -> dict[str, Tensor]:
    """The part that is."""
    own = fitted._fitted.factor.state()
    return growing.tensors(fitted) | {f"factor.{name}": value for name, value in own.items()}


def restore(made: Any, found: dict[str, Tensor], meta: dict[str, Any]) -> Fitted:
    """The posterior, for an estimator that has its arguments."""
    made.classes_ = unpack_labels(meta["classes"])
    n_classes = len(made.classes_)
    C = 1 if n_classes == 2 else n_classes
    q = model.posterior(found, meta["prior"], C, coupled=True)
    factor = _factor(meta["factor"], found, n_classes, q.mean.dtype)
    if isinstance(factor, Logistic):
        factor.probit = made.predictive == "probit"
    return model.restore(found, meta["prior"], made.kernel, C, q, factor)


def finish(made: Any, found: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """What needs the rest."""
    made._growing = growing.restore(found, meta["growing"], made._fitted, made.history_)


def _factor_name(factor: Likelihood) -> str:
    if FACTORS.get(type(factor).__name__) is not type(factor):
        raise BadOption(
            f"a {type(factor).__name__} cannot be saved: a file names one of the library's likelihoods, {', '.join(FACTORS)}."
        )
    return type(factor).__name__


def _factor(name: str, found: dict[str, Tensor], n_classes: int, dtype: torch.dtype) -> Likelihood:
    if name not in FACTORS:
        raise BadFile(f"the likelihood {name!r:.40} is unknown; known are {', '.join(FACTORS)}.")
    kind: Any = FACTORS[name]
    two = kind in (BinaryProbit, RobustBinary) or issubclass(kind, Logistic)
    if two != (n_classes == 2):
        raise BadFile(f"the likelihood {name} does not fit {n_classes} classes.")
    factor: Likelihood = kind() if two else kind(n_classes)
    own = {key.removeprefix("factor."): value for key, value in found.items() if key.startswith("factor.")}
    factor.load_state(own, dtype)
    return factor
