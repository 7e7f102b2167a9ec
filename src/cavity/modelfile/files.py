"""A fitted estimator as one file, and back: the posterior and its inducing points, the arguments, the history; no code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sklearn.utils.validation import check_is_fitted

from cavity import persist
from cavity._version import __version__
from cavity.errors import BadFile, CavityError
from cavity.estimators.plain import LeftOut, Packing, Unpacking
from cavity.estimators.saved import classifier, model, regressor
from cavity.estimators.saved.checks import (
    check_numbers,
    column_names,
    finite,
    history,
    own_memory,
    relevance,
    texts,
)
from cavity.estimators.values import resolve_device
from cavity.spectrum import Spectrum
from cavity.tabular.preparation import Preparation

KINDS: dict[str, Any] = {"model": classifier, "regressor": regressor}  # what a file calls itself
SCALARS = ("log_marginal_likelihood_", "elbo_")
DAMAGE = (
    KeyError,
    IndexError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    RuntimeError,
    RecursionError,
)


def save(estimator: Any, path: str | Path) -> None:
    """Write a fitted estimator; `load` reads it."""
    check_is_fitted(estimator, "_fitted")
    kind = next(name for name, part in KINDS.items() if isinstance(estimator, part.estimator()))
    packing = Packing()
    meta: dict[str, Any] = {
        "version": __version__,
        "arguments": {
            k: packing.pack(v, f"arguments.{k}") for k, v in estimator.get_params(deep=False).items()
        },
        "names": _names(estimator),
        "prior": model.describe(estimator._fitted.prior),
        "history": estimator.history_,
        "warnings": list(getattr(estimator, "fit_warnings_", [])),
        "scalars": {name: getattr(estimator, name) for name in SCALARS if hasattr(estimator, name)},
        "preparation": _optional(estimator, "preparation_", lambda p: p.to_json()),
        "notes": getattr(estimator, "notes_", {}),
        "rows": rows_inside(estimator),
        **KINDS[kind].describe(estimator),
    }
    tensors = packing.tensors | model.tensors(estimator._fitted) | KINDS[kind].tensors(estimator)
    if estimator.feature_relevance_ is not None:
        tensors["feature_relevance"] = torch.tensor(estimator.feature_relevance_)
    persist.write(path, kind, tensors, meta)


def load(path: str | Path, device: Any = None, kernel: Any = None) -> Any:
    """The GPClassifier or GPRegressor that `save` wrote: the same predictions, to the bit.

    Nothing in the file is run. `device` is where it predicts, by default the CPU, and the `device` of later fits. A model
    whose kernel is a torch module of your own, or a `Deep` one, needs `kernel=`, made as for the fit: the file has its learnt
    values but not its code. Also loaded is what `partial_fit` continues from; `warm_start` begins anew.
    """
    where = None if device is None else resolve_device(device)
    stored = persist.read(path, *KINDS)
    try:
        estimator = _estimator(stored, kernel)
    except CavityError as error:
        kind = BadFile if kernel is None else type(error)
        raise kind(f"{path}: {error}") from error
    except DAMAGE as error:
        raise BadFile(f"{path} is damaged: {type(error).__name__} {error!s:.200}.") from error
    if where is not None:
        estimator.device = device
        estimator._move(where)
    return estimator


def rows_inside(estimator: Any) -> str:
    """Which training rows a file of this model holds, in words."""
    if getattr(estimator, "_training", None) is not None:
        return "every training row, with its target"
    prior = estimator._fitted.prior
    if prior.learn_inducing or isinstance(prior, Spectrum):
        return "none"
    return "the inducing points, which were not learnt: training rows, unless you gave them"


def _names(estimator: Any) -> list[str] | None:
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _optional(estimator: Any, name: str, show: Any) -> Any:
    value = getattr(estimator, name, None)
    return None if value is None else show(value)


def _estimator(stored: persist.Stored, kernel: Any) -> Any:
    tensors, meta = own_memory(stored.tensors), stored.meta
    check_numbers(tensors)
    part = KINDS[meta["kind"]]
    estimator = part.estimator()(
        **_arguments(part.estimator(), Unpacking(tensors, kernel), meta["arguments"])
    )
    fitted = part.restore(estimator, tensors, meta)
    D = estimator.n_features_in_ = len(fitted.prior.center)
    if meta["names"] is not None:
        estimator.feature_names_in_ = column_names(meta["names"], D)
    estimator._show(fitted)
    estimator.history_ = history(meta["history"])
    estimator.n_epochs_ = len(estimator.history_)
    estimator.fit_warnings_ = texts(meta.get("warnings", []))  # older files have none
    for name in SCALARS:
        estimator._set(name, finite(meta["scalars"][name]) if name in meta["scalars"] else None)
    estimator.feature_relevance_ = relevance(tensors.get("feature_relevance"), D)
    if meta["preparation"] is not None:
        estimator.preparation_ = Preparation.from_json(meta["preparation"])
    if meta["notes"]:
        estimator.notes_ = dict(meta["notes"])
    part.finish(estimator, tensors, meta)
    return estimator


def _arguments(kind: Any, unpacking: Unpacking, packed: dict[str, Any]) -> dict[str, Any]:
    unknown = set(packed) - set(kind().get_params(deep=False))
    if unknown:
        raise BadFile(f"{sorted(unknown)[0]!r:.60} is no argument of {kind.__name__}: update cavity.")
    values = {name: unpacking.unpack(value) for name, value in packed.items()}
    return {name: v for name, v in values.items() if not _left_out(v)}


def _left_out(value: Any) -> bool:
    members = value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(v, LeftOut) for v in members)
