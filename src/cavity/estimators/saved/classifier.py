"""What a classifier's file adds: labels, the likelihood by name, and what `partial_fit` continues from."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cavity.errors import BadFile, BadOption
from cavity.estimators.fitted import Fitted
from cavity.estimators.plain import pack_labels, unpack_labels
from cavity.estimators.saved import growing, model
from cavity.estimators.saved.checks import expect
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
    found = growing.tensors(fitted)
    own = getattr(fitted._fitted.factor, "_epsilon", None)
    if own is not None:
        found["factor.epsilon"] = torch.tensor(own.value, dtype=torch.float64)
        found |= {} if own.log_odds is None else {"factor.log_odds": own.log_odds.detach().clone()}
    return found


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
    size = () if two else (n_classes,)
    robust = kind in (RobustBinary, RobustMax)
    factor: Likelihood = kind(*size, *_epsilon(found, dtype)) if robust else kind(*size)
    for parameter in factor.parameters:
        parameter.data = found["factor.log_odds"]
    return factor


def _epsilon(found: dict[str, Tensor], dtype: torch.dtype) -> tuple[float, bool]:
    """The share of random labels, and whether it was learnt."""
    expect("factor.epsilon", found["factor.epsilon"], [()], torch.float64)
    epsilon, learnt = float(found["factor.epsilon"]), "factor.log_odds" in found
    if not 0 <= epsilon < 1:
        raise BadFile(f"factor.epsilon is {epsilon:g}, which is no share.")
    if learnt:
        expect("factor.log_odds", found["factor.log_odds"], [(1,)], dtype)
    return epsilon, learnt
