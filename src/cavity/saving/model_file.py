"""A fitted estimator as one file, and back: the posterior, the arguments, the history; no code, and rows only if needed."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import nn

from cavity._version import __version__
from cavity.common import tensor_files
from cavity.errors import BadFile, CavityError
from cavity.fitting.results import Result, settle_kernel
from cavity.kernels.spectrum import Spectrum
from cavity.options.method import BOUND, EVIDENCE, Method, read_method
from cavity.options.plan import Plan
from cavity.options.training import flatten
from cavity.options.value_checks import resolve_device
from cavity.prediction.model import FittedModel
from cavity.prediction.novelty import describe_novelty, restore_novelty
from cavity.prediction.regression import TENSORS, TrainingRows, with_canonical_layout
from cavity.saving.checking import Contents, Meta, check_header, check_values
from cavity.saving.json_checks import read_estimate, read_features, read_relevance, read_units, unpack_labels
from cavity.saving.partial_fit_sums import describe_growing, growing_tensors, restore_growing
from cavity.saving.pools import describe_pool, pool_tensors, restore_pool
from cavity.saving.posterior import (
    check_training_rows,
    describe_prior,
    model_tensors,
    restore_likelihood,
    restore_model,
)
from cavity.saving.ranges import Sizes
from cavity.saving.schema import KINDS
from cavity.saving.serialize import Omitted, Packing, Tensors, Unpacking, pack_labels
from cavity.saving.summary import summarise

PATHS = ("checkpoint", "resume")  # that name files: a model file must not choose where a later fit writes


class Record(NamedTuple):
    """What a model file holds."""

    kind: str
    arguments: dict[str, Any]  # flat: those of `training` beside the others, in files of every version
    result: Result
    notes: dict[str, Any] = {}  # noqa: RUF012


E = TypeVar("E", bound=type)
ESTIMATORS: dict[str, Any] = {}  # classes with `_kind` and `_from_record`


def register(cls: E) -> E:
    """Register the class of estimator that files of its kind hold."""
    ESTIMATORS[cls._kind] = cls  # type: ignore[attr-defined]
    return cls


def save(record: Record, path: str | Path) -> None:
    """Write a fitted estimator; `load` reads it."""
    packing, result = Packing(), record.result
    prepare = result.features.preparation
    names = result.features.names if prepare is None else None  # a preparation has them
    evidence = None if math.isnan(result.evidence) else result.evidence
    scalars = {"log_marginal_likelihood_": evidence} | ({"elbo_": evidence} if result.is_bound else {})
    given = {name: value for name, value in record.arguments.items() if name not in PATHS}
    meta: dict[str, Any] = {
        "version": __version__,
        "arguments": {k: packing.pack(v, f"arguments.{k}") for k, v in given.items()},
        "names": None if names is None else list(names),
        "prior": describe_prior(result.model.prior),
        "likelihood": packing.pack(result.model.likelihood, "likelihood"),
        "history": result.history,
        "warnings": list(result.warnings),
        "scalars": scalars,
        "preparation": None if prepare is None else prepare.to_json(),
        "notes": record.notes,
        "rows": describe_rows_inside(result.model, result.rows),
        "summary": describe(record),
        "classes": None if result.classes is None else pack_labels(result.classes),
        "units": list(result.units) if result.classes is None else None,
        "growing": describe_growing(result.growing),
        "pool": describe_pool(result.model.pool),
        "calibration": result.calibration,
        "class_prior": None if result.class_prior is None else result.class_prior.tolist(),
        "estimate": None if result.estimate is None else result.estimate._asdict(),
        "importance": None if result.importance is None else result.importance.tolist(),
        "plan": None if result.plan is None else asdict(result.plan),
        "novelty": describe_novelty(result.novelty),
    }
    tensors = packing.tensors | model_tensors(result.model)
    tensors |= growing_tensors(result.growing) | pool_tensors(result.model.pool)
    if result.relevance is not None:
        tensors["feature_relevance"] = torch.tensor(result.relevance)
    if result.rows is not None:
        tensors |= {f"rows.{name}": getattr(result.rows, name).clone() for name in TENSORS}
    tensor_files.write(path, record.kind, tensors, meta)


def describe(record: Record) -> dict[str, Any]:
    """Return facts about a fitted estimator as values that JSON can hold: what `cavity info` prints."""
    inside = describe_rows_inside(record.result.model, record.result.rows)
    return summarise(record.arguments, record.result, inside)


def load(path: str | Path, device: Any = None, kernel: Any = None) -> Any:
    """Read the estimator that `save` wrote. It makes the same predictions, to the bit.

    Nothing in the file is run.

    Parameters
    ----------
    path : str or Path
        The file.
    device : None, str or torch.device
        Where the model predicts, and the `device` of later fits. None: the CPU.
    kernel : None, or a kernel
        Needed if the model's kernel is a torch module of your own, or a `Deep` one: make it as for the fit. The file has its
        learnt values but not its code.

    Returns
    -------
    GPClassifier or GPRegressor
        Ready to predict, and to continue with `partial_fit`; `warm_start` starts again.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier, load
    >>> X, y = load_iris(return_X_y=True)
    >>> path = Path(tempfile.mkdtemp()) / "iris.cavity"
    >>> GPClassifier(n_inducing=10, max_epochs=20, random_state=0).fit(X, y).save(path)
    >>> load(path).predict(X[:1]).tolist()
    [0]
    """
    record = read_record(path, device, kernel)
    return ESTIMATORS[record.kind]._from_record(record)


@torch.inference_mode(False)  # parameters that a later fit can learn
def read_record(path: str | Path, device: Any = None, kernel: Any = None) -> Record:
    """Read what a model file holds, as `load` does, but without the estimator: predictions then need no scikit-learn.

    Names of arguments are checked only if the estimators are loaded: predictions do not depend on other arguments.
    """
    where = None if device is None else resolve_device(device)
    stored = tensor_files.read(path, *KINDS, check=lambda declared, meta: _check(declared, meta, kernel))
    record = restore_record(stored, path, kernel)
    if where is None:
        return record
    model, rows = record.result.model.to(where), record.result.rows
    moved = record.result._replace(model=model, rows=None if rows is None else rows.to(where))
    return record._replace(result=moved, arguments=record.arguments | {"device": device})


def restore_record(stored: tensor_files.Stored, path: str | Path, kernel: Any = None) -> Record:
    """Return the record of a file that has been read; `path` is its name, for messages."""
    try:
        return _read(stored, kernel)
    except CavityError as error:
        kind = BadFile if kernel is None else type(error)
        raise kind(f"{path}: {error}") from error
    except tensor_files.DAMAGE as error:
        raise BadFile(f"{path} is damaged: {type(error).__name__} {error!s:.200}.") from error


def describe_rows_inside(model: FittedModel, rows: TrainingRows | None) -> str:
    """Return which training rows a file of this model holds."""
    if rows is not None:
        return "every training row, with its target"
    if model.prior.learn_inducing or isinstance(model.prior, Spectrum):
        return "none"
    return "the inducing points, which were not learnt: training rows, unless you gave them"


def _check(declared: dict[str, tensor_files.Entry], meta: dict[str, Any], kernel: Any) -> Contents:
    held = (*kernel.parameters(), *kernel.buffers()) if isinstance(kernel, nn.Module) else ()
    return check_header(declared, meta, own_bytes=sum(t.numel() * t.element_size() for t in held))


def _read(stored: tensor_files.Stored, kernel: Any) -> Record:
    tensors, meta, contents = stored
    check_values({name: t.numpy() for name, t in tensors.items()}, contents)
    arguments = _read_arguments(meta, Unpacking(tensors, kernel))
    result = _read_result(tensors, meta, arguments, contents.sizes)
    return Record(meta["kind"], arguments, result, meta["notes"])


def _read_result(tensors: Tensors, meta: Meta, arguments: Meta, sizes: Sizes) -> Result:
    owner, task, default = KINDS[meta["kind"]]
    method = read_method(arguments.get("method", default), task)
    classes = None if meta.get("classes") is None else unpack_labels(meta["classes"])
    n_classes, D = None if classes is None else len(classes), sizes["D"]
    if classes is None and method.committee is None and sizes["C"] > 1:
        raise BadFile(f"mean has {sizes['C']} latent functions; expected one.")
    likelihood = restore_likelihood(tensors, meta, method, n_classes, tensors["mean"].dtype)
    model = restore_model(tensors, meta["prior"], arguments.get("kernel"), sizes, likelihood)
    settle_kernel(model)
    if n_classes is not None:
        model = model._replace(pool=restore_pool(tensors, meta.get("pool")))
    scalars, features = meta["scalars"], read_features(meta, owner, D)
    evidence, relevance = scalars.get("log_marginal_likelihood_"), tensors.get("feature_relevance")
    bound = BOUND if "elbo_" in scalars else EVIDENCE
    shares, importance = meta.get("class_prior"), meta.get("importance")
    return Result(
        model=model,
        features=features,
        evidence=math.nan if evidence is None else float(evidence),
        is_bound="elbo_" in scalars,
        evidence_name=bound if n_classes is None else method.name_evidence(n_classes),
        history=list(meta["history"]),
        relevance=read_relevance(None if relevance is None else relevance.numpy(), features),
        warnings=tuple(meta.get("warnings") or ()),
        classes=classes,
        growing=restore_growing(tensors, meta.get("growing"), model, meta["history"]),
        units=read_units(meta.get("units")),
        rows=_read_rows(tensors, method, model) if method.keeps_rows else None,
        predicts_residual=method.predicts_residual,
        calibration=meta.get("calibration"),
        class_prior=None if shares is None else np.array(shares, dtype=np.float64),
        estimate=read_estimate(meta.get("estimate")),
        importance=None if importance is None else np.array(importance, dtype=np.float64),
        plan=Plan.from_json(meta["plan"]) if meta.get("plan") else None,
        novelty=restore_novelty(meta.get("novelty")),
    )


def _read_arguments(meta: dict[str, Any], unpacking: Unpacking) -> dict[str, Any]:
    """Return the constructor's arguments."""
    given = {name: value for name, value in meta["arguments"].items() if name not in PATHS}
    values = {name: unpacking.unpack(value) for name, value in given.items()}
    values = {name: v for name, v in values.items() if not _is_omitted(v)}
    cls: Any = ESTIMATORS.get(meta["kind"])
    unknown = set() if cls is None else set(values) - set(flatten(cls().get_params(deep=False)))
    if unknown:
        raise BadFile(f"{sorted(unknown)[0]!r:.60} is not an argument of {cls.__name__}: update cavity.")
    return values


def _is_omitted(value: Any) -> bool:
    members = value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(v, Omitted) for v in members)


def _read_rows(tensors: Tensors, method: Method, model: FittedModel) -> TrainingRows:
    found = {name: tensors[f"rows.{name}"] for name in TENSORS}
    rows = with_canonical_layout(TrainingRows(**found, tol=method.solver_tol))
    check_training_rows(model, rows)
    return rows
