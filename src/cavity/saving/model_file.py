"""Save a fitted estimator as one file, and load it.

The file holds the posterior, the arguments and the history; no code, and training rows
only if predictions need them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from cavity.common import tensor_files
from cavity.common.version import __version__
from cavity.errors import BadFile, CavityError
from cavity.fitting.options.plan import FitPlan
from cavity.fitting.options.training import flatten
from cavity.prediction.estimate import Estimate
from cavity.prediction.member_scores import MemberScores
from cavity.prediction.novelty import Novelty
from cavity.prediction.result import Result
from cavity.prediction.target_estimate import TargetEstimate
from cavity.prediction.target_spread import EVEN, Spread
from cavity.prediction.targets import STORED
from cavity.saving.checking import Arrays, Contents, Meta, check_header, check_values
from cavity.saving.pool_arrays import describe_pool, list_arrays
from cavity.saving.restore import count_kernels, restore_model, restore_rows
from cavity.saving.schema import KINDS
from cavity.saving.serialize import (
    Packing,
    Unpacking,
    from_json,
    pack_labels,
    read_array,
    to_json,
)
from cavity.saving.summary import summarise
from cavity.tables.columns.column_kinds import Category
from cavity.tables.columns.column_shares import ColumnShares
from cavity.tables.columns.encoder import ColumnEncoder
from cavity.tables.validation import Features, prepared_features

# arguments that name files: a model file must not choose where a later fit writes
PATHS = ("checkpoint", "resume")
# fields of a result
AS_JSON = (
    "history",
    "warnings",
    "calibration",
    "class_prior",
    "importance",
    "novelty",
    "members",
    "shares",
)
MOST_EPOCHS = 10_000  # the last ones of a history are saved
GIVEN_UP = ("exchange",)  # arguments of older files that were removed
# values of arguments in older files, and today's
REPLACED = {
    "effort": {"best": "balanced"},
    "inducing": {"kmeans++": "kmeans"},
}


class Record(NamedTuple):
    """Contents of a model file."""

    kind: str
    # flat, in files of every version: arguments of `training` stand beside the others
    arguments: dict[str, Any]
    result: Result
    notes: dict[str, Any] = {}  # noqa: RUF012


E = TypeVar("E", bound=type)
ESTIMATORS: dict[str, Any] = {}  # classes with `_kind` and `_from_record`


def register(cls: E) -> E:
    """Register the estimator class for files of its kind."""
    ESTIMATORS[cls._kind] = cls  # type: ignore[attr-defined]
    return cls


def save(record: Record, path: str | Path) -> None:
    """Write a fitted estimator; `load` reads it."""
    packing = Packing()
    meta = _describe_fit(record, packing)
    result = record.result
    arrays = packing.arrays | list_arrays(result.model)
    if result.relevance is not None:
        arrays["feature_relevance"] = result.relevance
    if result.rows is not None:
        arrays |= {f"rows.{name}": getattr(result.rows, name) for name in STORED}
    tensor_files.write(path, record.kind, arrays, meta)


def _describe_fit(record: Record, packing: Packing) -> Meta:
    """Return the JSON of a file; `packing` collects the arrays of arguments."""
    result = record.result
    features = result.features
    prepare = features.preparation
    prior = result.model.prior
    evidence = None if math.isnan(result.evidence) else result.evidence
    scalars = {"log_marginal_likelihood_": evidence}
    if result.is_bound:
        scalars["elbo_"] = evidence
    meta: Meta = {
        "version": __version__,
        "arguments": {
            name: packing.pack(value, f"arguments.{name}")
            for name, value in record.arguments.items()
            if name not in PATHS
        },
        "names": features.names if prepare is None else None,
        "prior": {
            "learn": prior.learnt,
            "kernels": count_kernels(prior.kernel),
            "frequencies": result.model.spectral,
        },
        "likelihood": packing.pack(result.model.likelihood, "likelihood"),
        "scalars": scalars,
        "preparation": None if prepare is None else prepare.to_json(),
        "notes": record.notes,
        "summary": describe(record),
        "pool": describe_pool(result.model.pool),
        "plan": None if result.plan is None else asdict(result.plan),
        "predicts": {
            "residual": result.predicts_residual,
            "tolerance": result.rows.tol if result.rows else 0,
        },
    }
    for name in AS_JSON:
        meta[name] = to_json(getattr(result, name))
    meta["history"] = meta["history"][-MOST_EPOCHS:]
    if result.classes is None:
        outcome = {
            "classes": None,
            "units": result.units,
            "target_estimate": to_json(result.estimate),
            "target_spread": to_json(result.spread),
        }
    else:
        outcome = {
            "classes": pack_labels(result.classes),
            "units": None,
            "estimate": to_json(result.estimate),
        }
    return meta | outcome


def describe(record: Record) -> dict[str, Any]:
    """Return facts about a fitted estimator as JSON, as `cavity info` prints them."""
    return summarise(record.arguments, record.result)


def load(path: str | Path, device: Any = None, kernel: Any = None) -> Any:
    """Read the estimator that `save` wrote: see `cavity.load`."""
    record = read_record(path, device, kernel)
    return ESTIMATORS[record.kind]._from_record(record)


def read_record(path: str | Path, device: Any = None, kernel: Any = None) -> Record:
    """Read the contents of a model file, without making an estimator."""
    stored = _read_file(path, kernel)
    meta = stored.meta
    with _name_file(path, kernel):
        arguments = _read_arguments(meta, Unpacking(stored.tensors, kernel))
        result = _read_result(*stored, kernel)
    if device is not None:
        arguments["device"] = device
    return Record(meta["kind"], arguments, _place(result, device), meta["notes"])


def read_result(path: str | Path, device: Any = None) -> Result:
    """Read what predictions need, without loading torch or scikit-learn."""
    stored = _read_file(path, None)
    with _name_file(path, None):
        result = _read_result(*stored, None)
    return _place(result, device)


def _read_file(path: str | Path, kernel: Any) -> tensor_files.Stored:
    own_bytes = 0
    if hasattr(kernel, "parameters"):
        for tensor in (*kernel.parameters(), *kernel.buffers()):
            own_bytes += tensor.numel() * tensor.element_size()
    check = partial(check_header, own_bytes=own_bytes)
    stored = tensor_files.read_arrays(path, *KINDS, check=check)
    with _name_file(path, kernel):
        check_values(stored.tensors, stored.checked)
    return stored


def _place(result: Result, device: Any) -> Result:
    """Move a result to a device; None: the CPU."""
    if device is None:
        return result

    from cavity.fitting.options.value_checks import resolve_device

    return result.to(resolve_device(device))


@contextmanager
def _name_file(path: str | Path, kernel: Any) -> Iterator[None]:
    """Name the file in errors, and report senseless contents as damage."""
    try:
        yield
    except CavityError as error:
        kind = BadFile if kernel is None else type(error)
        raise kind(f"{path}: {error}") from error
    except tensor_files.DAMAGE as error:
        raise BadFile(
            f"{path} is damaged: {type(error).__name__} {error!s:.200}."
        ) from error


def _read_result(arrays: Arrays, meta: Meta, contents: Contents, kernel: Any) -> Result:
    C = contents.sizes["C"]
    classes = contents.classes
    is_committee = meta["likelihood"].get("likelihood") == "Committee"
    if classes is None and C > 1 and not is_committee:
        raise BadFile(f"mean has {C} latent functions; expected one.")

    model = restore_model(arrays, meta, contents, kernel)
    features = _read_features(meta, contents.sizes["D"])
    residual, tol = _read_method(arrays, meta)
    evidence = meta["scalars"].get("log_marginal_likelihood_")
    estimate = from_json(Estimate, meta.get("estimate"))
    shift, scale = meta.get("units") or (0.0, 1.0)
    return Result(
        model=model,
        features=features,
        evidence=math.nan if evidence is None else float(evidence),
        is_bound="elbo_" in meta["scalars"],
        evidence_name=str((meta.get("summary") or {}).get("evidence") or ""),
        history=list(meta["history"]),
        relevance=arrays.get("feature_relevance"),
        warnings=tuple(meta.get("warnings") or ()),
        classes=classes,
        units=(float(shift), float(scale)),
        rows=None if tol is None else restore_rows(arrays, tol, model),
        predicts_residual=residual,
        calibration=meta.get("calibration"),
        class_prior=read_array(meta.get("class_prior")),
        estimate=estimate or from_json(TargetEstimate, meta.get("target_estimate")),
        spread=from_json(Spread, meta.get("target_spread"), read_array) or EVEN,
        importance=read_array(meta.get("importance")),
        plan=FitPlan.from_json(meta.get("plan")),
        members=from_json(MemberScores, meta.get("members")),
        novelty=from_json(Novelty, meta.get("novelty"), read_array),
        shares=_read_shares(meta.get("shares"), features),
    )


def _read_features(meta: Meta, D: int) -> Features:
    """Return the columns that the model was fitted to; it has D features."""
    owner = KINDS[meta["kind"]]
    names = meta["names"]
    if meta["preparation"] is None:
        return Features(owner, D, None if names is None else tuple(names))

    features = prepared_features(owner, ColumnEncoder.from_json(meta["preparation"]))
    if features.n != D:
        raise BadFile(
            f"the preparation makes {features.n} features, but the model has {D}."
        )

    return features


def _read_shares(
    stored: list[Any] | None, features: Features
) -> tuple[ColumnShares, ...] | None:
    """Return how the cells of each column that the model reads are spread."""
    if stored is None:
        return None

    found = tuple(from_json(ColumnShares, column) for column in stored)
    columns = features.encoder.columns_
    if [column.name for column in columns] != [shares.name for shares in found]:
        raise BadFile("shares: the columns are not those of the model.")

    for column, shares in zip(columns, found, strict=True):
        n = len(shares.edges) + 1
        if isinstance(column, Category):
            n = len(column.levels)
        if len(shares.shares) != n:
            raise BadFile(f"shares of {column.name!r:.40}: expected {n} numbers.")

    return found


def _read_method(arrays: Arrays, meta: Meta) -> tuple[bool, float | None]:
    """Return whether variances include the residual, and the solver's tolerance if
    predictions read the training rows, else None.
    """
    about = meta.get("predicts")
    if about is not None:
        has_rows = any(name.startswith("rows.") for name in arrays)
        return bool(about["residual"]), float(about["tolerance"]) if has_rows else None
    if meta["kind"] == "model":
        return True, None

    # a regressor of version 0.3
    from cavity.fitting.options.library import read_method

    packed = meta["arguments"].get("method", "exact")
    method = read_method(Unpacking(arrays).unpack(packed), "regression")
    return method.predicts_residual, method.solver_tol if method.keeps_rows else None


def _read_arguments(meta: Meta, unpacking: Unpacking) -> dict[str, Any]:
    """Return the constructor's arguments."""
    given = {
        name: value
        for name, value in meta["arguments"].items()
        if name not in PATHS + GIVEN_UP
    }
    if meta["likelihood"].get("likelihood") == "RobustMax":
        _name_robust_max(given)

    values = unpacking.unpack_all(given)
    for name, new in REPLACED.items():
        value = values.get(name)
        if isinstance(value, str):
            values[name] = new.get(value, value)

    if hasattr(values.get("method"), "check"):
        values["method"].check()
    cls = ESTIMATORS.get(meta["kind"])
    if cls is not None:
        unknown = set(values) - set(flatten(cls().get_params(deep=False)))
        if unknown:
            raise BadFile(
                f"{min(unknown)!r:.60} is not an argument of {cls.__name__}: update "
                "cavity."
            )

    return values


def _name_robust_max(given: dict[str, Any]) -> None:
    """Name the likelihood of VI, whose default it was in older files."""
    method = given.get("method")
    if method == "vi":
        method = given["method"] = {"method": "VI", "arguments": {}}
    if isinstance(method, dict) and method.get("method") == "VI":
        arguments = method.get("arguments")
        if isinstance(arguments, dict) and arguments.get("likelihood") is None:
            arguments["likelihood"] = "robust-max"
