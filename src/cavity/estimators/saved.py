"""A fitted classifier as one file, and back: the posterior and its inducing points, the arguments, the history; no rows."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from cavity import persist
from cavity._version import __version__
from cavity.columns import Columns
from cavity.data.preparation import Preparation
from cavity.errors import BadFile, BadOption, CavityError
from cavity.estimators import fitted, growing
from cavity.estimators.plain import LeftOut, Packing, Unpacking, pack_labels, unpack_labels
from cavity.estimators.values import resolve_device
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
from cavity.kernels import RBF, Deep, Kernel
from cavity.prior import Prior
from cavity.spectrum import DEGREES, Spectrum

KIND = "model"
SCALARS = ("log_marginal_likelihood_", "elbo_")
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
    """Write a fitted classifier; `load` reads it."""
    check_is_fitted(estimator, "_fitted")
    packing = Packing()
    model: fitted.Fitted = estimator._fitted
    meta: dict[str, Any] = {
        "version": __version__,
        "arguments": {
            k: packing.pack(v, f"arguments.{k}") for k, v in estimator.get_params(deep=False).items()
        },
        "classes": pack_labels(estimator.classes_),
        "names": _names(estimator),
        "prior": _describe(model.prior),
        "factor": _factor_name(model.factor),
        "history": estimator.history_,
        "warnings": list(getattr(estimator, "fit_warnings_", [])),
        "scalars": {name: getattr(estimator, name) for name in SCALARS if hasattr(estimator, name)},
        "growing": growing.describe(estimator),
        "preparation": _optional(estimator, "preparation_", lambda p: p.to_json()),
        "notes": getattr(estimator, "notes_", {}),
    }
    tensors = packing.tensors | _tensors(model) | growing.tensors(estimator)
    if estimator.feature_relevance_ is not None:
        tensors["feature_relevance"] = torch.tensor(estimator.feature_relevance_)
    persist.write(path, KIND, tensors, meta)


def load(path: str | Path, device: Any = None, kernel: Any = None) -> Any:
    """The classifier that `save` wrote: the same predictions, to the bit.

    Nothing in the file is run. `device` is where it predicts, by default the CPU, and the `device` of later fits. A model
    whose kernel is a torch module of your own, or a `Deep` one, needs `kernel=`, made as for the fit: the file has its learnt
    values but not its code. Also loaded is what `partial_fit` continues from; `warm_start` begins anew.
    """
    where = None if device is None else resolve_device(device)
    stored = persist.read(path, KIND)
    try:
        estimator = _estimator(stored, kernel)
    except CavityError as error:
        kind = BadFile if kernel is None else type(error)
        raise kind(f"{path}: {error}") from error
    except DAMAGE as error:
        raise BadFile(f"{path} is damaged: {type(error).__name__} {error!s:.200}.") from error
    if where is not None:
        estimator.device = device
        estimator._fitted = estimator._fitted.to(where)
    return estimator


def _names(estimator: Any) -> list[str] | None:
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _optional(estimator: Any, name: str, show: Any) -> Any:
    value = getattr(estimator, name, None)
    return None if value is None else show(value)


def _factor_name(factor: Likelihood) -> str:
    if FACTORS.get(type(factor).__name__) is not type(factor):
        raise BadOption(
            f"a {type(factor).__name__} cannot be saved: a file names one of the library's likelihoods, {', '.join(FACTORS)}."
        )
    return type(factor).__name__


def _describe(prior: Prior) -> dict[str, Any]:
    """What the shapes of its tensors do not say."""
    moving = (
        any(p.requires_grad for p in prior.kernel.parameters())
        if isinstance(prior.kernel, nn.Module)
        else False
    )
    learnt = {"kernel": moving, "noise": prior.learn_noise, "inducing": prior.learn_inducing}
    return {
        "learn": [name for name, is_learnt in learnt.items() if is_learnt],
        "kernels": _kernel_sets(prior.kernel),
        "spectrum": isinstance(prior, Spectrum),
    }


def _kernel_sets(kernel: Any) -> int:
    """How many classes the kernel has parameters for: all, or one set that they share."""
    parts = kernel.modules() if isinstance(kernel, nn.Module) else ()
    logs = [p for part in parts if isinstance(part, Kernel) for p in part.parameters(recurse=False)]
    return max((len(p) for p in logs if p.ndim), default=1)


def _entries(prior: Prior) -> Iterator[tuple[str, Tensor]]:
    """Its parameters and buffers by name, each once."""
    yield from prior.named_parameters(prefix="prior")
    yield from prior.named_buffers(prefix="prior")


def _tensors(model: fitted.Fitted) -> dict[str, Tensor]:
    found = {name: t.detach().clone() for name, t in _entries(model.prior)}
    found |= {"prior_lower": model.prior_lower, "mean": model.mean, "lower": model.lower}
    own = getattr(model.factor, "_epsilon", None)
    if own is not None:
        found["factor.epsilon"] = torch.tensor(own.value, dtype=torch.float64)
        found |= {} if own.log_odds is None else {"factor.log_odds": own.log_odds.detach().clone()}
    return found


def _estimator(stored: persist.Stored, kernel: Any) -> Any:
    from cavity.estimators.classifier import GPClassifier

    tensors, meta = {name: t.clone() for name, t in stored.tensors.items()}, stored.meta
    _check_numbers(tensors)
    unpacking = Unpacking(tensors, kernel)
    estimator = GPClassifier(**_arguments(GPClassifier(), unpacking, meta["arguments"]))
    estimator.classes_ = unpack_labels(meta["classes"])
    model = _model(tensors, meta, estimator.kernel, len(estimator.classes_))
    if isinstance(model.factor, Logistic):
        model.factor.probit = estimator.predictive == "probit"
    estimator.n_features_in_ = len(model.prior.center)
    if meta["names"] is not None:
        estimator.feature_names_in_ = _column_names(meta["names"], estimator.n_features_in_)
    estimator._show(model)
    estimator.history_ = _history(meta["history"])
    estimator.n_epochs_ = len(estimator.history_)
    estimator.fit_warnings_ = _texts(meta.get("warnings", []))  # older files have none
    for name in SCALARS:
        estimator._set(name, _number(meta["scalars"][name]) if name in meta["scalars"] else None)
    estimator.feature_relevance_ = _relevance(tensors.get("feature_relevance"), estimator.n_features_in_)
    if meta["preparation"] is not None:
        estimator.preparation_ = Preparation.from_json(meta["preparation"])
    if meta["notes"]:
        estimator.notes_ = dict(meta["notes"])
    estimator._growing = growing.restore(tensors, meta["growing"], model, estimator.history_)
    return estimator


def _texts(values: Any) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError("the warnings of the fit are no list of texts")
    return values


def _arguments(usual: Any, unpacking: Unpacking, packed: dict[str, Any]) -> dict[str, Any]:
    known = usual.get_params(deep=False)
    unknown = set(packed) - set(known)
    if unknown:
        raise BadFile(f"{sorted(unknown)[0]!r:.60} is no argument of GPClassifier: update cavity.")
    values = {name: unpacking.unpack(value) for name, value in packed.items()}
    return {name: v for name, v in values.items() if not _left_out(v)}


def _left_out(value: Any) -> bool:
    members = value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(v, LeftOut) for v in members)


def _model(tensors: dict[str, Tensor], meta: dict[str, Any], kernel: Any, n_classes: int) -> fitted.Fitted:
    """The posterior with its prior; every shape is compared with the others before anything is made of it."""
    C = 1 if n_classes == 2 else n_classes
    mean, lower, prior_lower = (tensors[name] for name in ("mean", "lower", "prior_lower"))
    D = tensors["prior.center"].shape[0]
    Z = tensors["prior.inducing"]
    dtype, H = mean.dtype, Z.shape[-2]
    M = (
        2 * H if meta["prior"].get("spectrum") else H
    )  # a frequency has a cosine and a sine; older files have none
    blocks = 1 if len(mean) < C else C  # of q: the classes may be coupled
    _expect("mean", mean, [(blocks, C // blocks * M)], dtype)
    _expect("lower", lower, [(blocks, C // blocks * M, C // blocks * M)], dtype)
    _expect("prior_lower", prior_lower, [(1, M, M), (C, M, M)], dtype)
    _expect("prior.inducing", Z, [(1, H, D), (C, H, D)], dtype)
    if not M * D:
        raise BadFile("there are no inducing points, or no columns.")
    for name, factor in (("lower", lower), ("prior_lower", prior_lower)):
        if not (factor.diagonal(dim1=-2, dim2=-1) > 0).all():
            raise BadFile(f"{name} is no Cholesky factor.")
    prior = _prior(tensors, meta["prior"], copy.deepcopy(kernel) if kernel is not None else RBF(), C, dtype)
    return fitted.ready(prior, prior_lower, mean, lower, _factor(meta["factor"], tensors, n_classes, dtype))


def _prior(
    tensors: dict[str, Tensor], about: dict[str, Any], kernel: Any, C: int, dtype: torch.dtype
) -> Prior:
    learn, K = frozenset(map(str, about["learn"])), about["kernels"]
    D = len(tensors["prior.center"])
    if K not in (1, C):
        raise BadFile(f"the kernel has {K!r:.20} sets of parameters for {C} latent functions.")
    if isinstance(kernel, Kernel):
        _check_lengthscales(kernel, tensors, (K, D))
        where, wide = (tensors[f"prior.{name}"].double().numpy() for name in ("center", "spread"))
        kernel.bind(K, Columns(where, wide, 1.0))
    kernel.requires_grad_("kernel" in learn)
    noise = tensors["prior.log_noise" if "noise" in learn else "prior.fixed_noise"]
    _expect("the noise", noise, [(1,), (C,)], dtype)
    Z, center, spread = (
        torch.ones_like(tensors[f"prior.{name}"]) for name in ("inducing", "center", "spread")
    )
    if about.get("spectrum") and type(kernel) not in DEGREES:
        raise BadFile(f"a sparse spectrum of {type(kernel).__name__} is not known.")
    kind = Spectrum if about.get("spectrum") else Prior
    prior = kind(kernel, Z, torch.ones_like(noise), center, spread, C, learn).to(dtype)
    _fill(prior, tensors)
    return prior


def _check_lengthscales(kernel: nn.Module, tensors: dict[str, Tensor], shape: tuple[int, int]) -> None:
    """Whatever grows with classes times columns must be in the file before it is made here."""
    parts = dict(kernel.named_modules(prefix="prior.kernel"))
    deep = tuple(
        f"{name}." for name, part in parts.items() if isinstance(part, Deep)
    )  # below one, columns are features
    for name, part in parts.items():
        if hasattr(part, "lengthscale") and not name.startswith(deep):
            _expect(name, tensors[f"{name}.log_lengthscale"], [shape], None)


def _fill(prior: Prior, tensors: dict[str, Tensor]) -> None:
    """The file's values for every parameter and buffer, and no others."""
    entries = dict(_entries(prior))
    found = {name for name in tensors if name.startswith("prior.")}
    if found != set(entries):
        odd = sorted(found ^ set(entries))[0]
        raise BadFile(
            f"{odd!r:.100} is {'not known to' if odd in found else 'missing for'} this kernel; a kernel= must be as for the fit."
        )
    for name, entry in entries.items():
        _expect(name, tensors[name], [tuple(entry.shape)], entry.dtype)
        entry.data.copy_(tensors[name])


def _factor(name: str, tensors: dict[str, Tensor], n_classes: int, dtype: torch.dtype) -> Likelihood:
    if name not in FACTORS:
        raise BadFile(f"the likelihood {name!r:.40} is unknown; known are {', '.join(FACTORS)}.")
    kind: Any = FACTORS[name]
    two = kind in (BinaryProbit, RobustBinary) or issubclass(kind, Logistic)
    if two != (n_classes == 2):
        raise BadFile(f"the likelihood {name} does not fit {n_classes} classes.")
    size = () if two else (n_classes,)
    robust = kind in (RobustBinary, RobustMax)
    factor: Likelihood = kind(*size, *_epsilon(tensors, dtype)) if robust else kind(*size)
    for parameter in factor.parameters:
        parameter.data = tensors["factor.log_odds"]
    return factor


def _epsilon(tensors: dict[str, Tensor], dtype: torch.dtype) -> tuple[float, bool]:
    """The share of random labels, and whether it was learnt."""
    _expect("factor.epsilon", tensors["factor.epsilon"], [()], torch.float64)
    epsilon, learnt = float(tensors["factor.epsilon"]), "factor.log_odds" in tensors
    if not 0 <= epsilon < 1:
        raise BadFile(f"factor.epsilon is {epsilon:g}, which is no share.")
    if learnt:
        _expect("factor.log_odds", tensors["factor.log_odds"], [(1,)], dtype)
    return epsilon, learnt


def _check_numbers(tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if name.startswith("arguments."):
            continue
        if tensor.dtype not in (torch.float32, torch.float64, torch.int64):
            raise BadFile(f"{name!r:.100} is of type {tensor.dtype}, which no model has.")
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise BadFile(f"{name!r:.100} holds NaN or infinity.")


def _expect(name: str, tensor: Tensor, shapes: list[tuple[int, ...]], dtype: torch.dtype | None) -> None:
    if tuple(tensor.shape) not in shapes or dtype not in (None, tensor.dtype):
        wanted = " or ".join(map(str, shapes))
        raise BadFile(
            f"{name:.100} has shape {tuple(tensor.shape)} and type {tensor.dtype}; expected {wanted}, {dtype}."
        )


def _column_names(names: Any, n_columns: int) -> Any:
    if not isinstance(names, list) or len(names) != n_columns or not all(isinstance(n, str) for n in names):
        raise BadFile(f"the names are not those of {n_columns} columns.")
    return np.array(names, dtype=object)


def _history(rows: Any) -> list[dict[str, Any]]:
    for row in rows:
        if not all(isinstance(k, str) and isinstance(v, int | float) for k, v in row.items()):
            raise BadFile("the history is not a list of numbers by name.")
    return list(rows)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadFile(f"{value!r:.40} stands where a number should.")
    return float(value)


def _relevance(weights: Tensor | None, n_columns: int) -> Any:
    if weights is None:
        return None
    _expect("feature_relevance", weights, [(n_columns,)], torch.float64)
    if not math.isclose(float(weights.sum()), 1.0, rel_tol=1e-6):
        raise BadFile("feature_relevance does not sum to one.")
    return weights.numpy().copy()
