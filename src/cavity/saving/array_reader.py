"""Read the models that default settings make into NumPy. Any other file is left to the full reader.

The schema says what a file may hold, as for the full reader; here stands only which models NumPy predicts.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common import tensor_files
from cavity.errors import BadFile, BadInput
from cavity.kernels import formulas
from cavity.kernels.formulas import Formula, Scale
from cavity.prediction.latent import LatentModel
from cavity.prediction.novelty import Novelty, restore_novelty
from cavity.prediction.pool import NO_POOL, Pool
from cavity.rows.validation import Features
from cavity.saving import json_checks
from cavity.saving.checking import (
    Arrays,
    Contents,
    Declared,
    check_factor,
    check_header,
    check_values,
    find_kernel,
    walk,
)
from cavity.saving.pools import restore_pool
from cavity.saving.schema import KINDS

# which predict from q alone
METHODS = {"model": ("auto", "ep", "sep"), "regressor": ("exact", "fitc", "vi", "svi")}
PAIRS = {"Sum": np.add, "Product": np.multiply}
NUMBERS = {"lengthscale", "variance", "alpha", "fades"}  # arguments of the other kernels


class Unknown(Exception):
    """The file is not of the kind that this module reads."""


class ArrayRecord(NamedTuple):
    """What predictions need of a model file."""

    model: LatentModel
    features: Features
    classes: NDArray[Any] | None  # of a classifier
    units: tuple[float, float]  # shift and scale of a regressor's targets
    noise: float  # variance of a regressor's targets
    stored: tensor_files.Stored  # the whole file, for the full reader
    novelty: Novelty | None
    pool: Pool = NO_POOL


def read_array_record(path: str | Path) -> ArrayRecord | None:
    """Return the record of a model; None if the file needs the full reader. Raises BadFile as that one does."""
    try:
        stored = tensor_files.read_arrays(path, *KINDS, check=_check)
        check_values(stored.tensors, stored.checked)
        return _read(stored)
    except BadFile as error:
        raise error if str(path) in str(error) else BadFile(f"{path}: {error}") from error
    except (Unknown, BadInput):
        return None
    except tensor_files.DAMAGE as error:
        raise BadFile(f"{path} is damaged: {type(error).__name__} {error!s:.200}.") from error


def _check(declared: Declared, meta: dict[str, Any]) -> Contents:
    """Check the header; raise Unknown for other models than NumPy predicts."""
    try:
        known = _is_known(declared, meta)
    except tensor_files.DAMAGE:
        known = False
    if not known:
        raise Unknown
    return check_header(declared, meta)


def _is_known(declared: Declared, meta: dict[str, Any]) -> bool:
    arguments, likelihood = meta["arguments"], meta["likelihood"]
    name, given = likelihood["likelihood"], likelihood["arguments"]
    if meta["kind"] == "regressor":
        plain = (
            name == "Gaussian"
            and given.keys() == {"noise", "learn", "projected"}
            and given["projected"] is False
        )
        plain = plain and _is_positive(given["noise"]) and isinstance(given["learn"], bool)
        plain = plain and "factor.log_noise" in declared and declared["mean"].shape[0] == 1
    else:
        n = len(meta["classes"]["values"])
        plain = (name, given) == (("BinaryProbit", {}) if n == 2 else ("ProbitPairs", {"n_classes": n}))
        plain = plain and not any(entry.startswith("factor.") for entry in declared)
    return (
        plain
        and arguments["method"] in METHODS[meta["kind"]]
        and declared["mean"].dtype == "F64"
        and not meta["prior"]["spectrum"]
        and likelihood.keys() == {"likelihood", "arguments"}
        and not any(entry.startswith("rows.") for entry in declared)
        and all(_is_plain(value) for key, value in arguments.items() if key != "kernel")
        and all(_is_plain_kernel(*part) for part in walk(find_kernel(declared, meta)))
    )


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _is_plain_kernel(at: str, name: str | None, arguments: dict[str, Any]) -> bool:
    """Return whether a part of a kernel is of the library and has numbers as arguments, or parts of its own."""
    if name is None or not arguments.keys() <= ({"k1", "k2"} if name in PAIRS else NUMBERS):
        return False
    if name in PAIRS:
        return all(isinstance(part.get("kernel"), str) for part in arguments.values())
    numbers = {key: value for key, value in arguments.items() if key != "fades"}
    plain = all(_is_positive(v) or (v is None and key == "lengthscale") for key, v in numbers.items())
    return plain and isinstance(arguments.get("fades", False), bool)


def _is_plain(value: Any) -> bool:
    """Return whether an argument is a number, a text, something that is not stored, or a list of such."""
    if not isinstance(value, dict):
        return value is None or isinstance(value, bool | int | float | str)
    ((kind, content),) = value.items()
    if kind in ("list", "tuple"):
        return isinstance(content, list) and all(map(_is_plain, content))
    return bool(kind == "left out")


def _read(stored: tensor_files.Stored) -> ArrayRecord:
    arrays, meta, contents = stored
    classifies, learn = meta["kind"] == "model", meta["prior"]["learn"]
    features = json_checks.read_features(meta, KINDS[meta["kind"]].owner, contents.sizes["D"])
    json_checks.read_relevance(arrays.get("feature_relevance"), features)
    Z = arrays["prior.inducing"]
    if "inducing" in learn:
        Z = arrays["prior.center"] + arrays["prior.spread"] * Z
    _check_factors(contents, arrays, Z)
    formula = _make_formula(contents.kernel, "prior.kernel", arrays)
    model = LatentModel(
        formula=formula,
        points=formula.prepare(Z),
        noise=np.exp(arrays["prior.log_noise"]) if "noise" in learn else arrays["prior.fixed_noise"],
        prior_lower=arrays["prior_lower"],
        mean=arrays["mean"],
        lower=arrays["lower"],
    )
    if formulas.are_far(model.points):
        raise Unknown
    classes = json_checks.unpack_labels(meta["classes"]) if classifies else None
    units, noise = json_checks.read_units(meta.get("units")), 0.0
    if not classifies:
        noise = float(np.exp(arrays["factor.log_noise"][0]))
    pool, novelty = restore_pool(arrays, meta.get("pool")), restore_novelty(meta.get("novelty"))
    return ArrayRecord(model, features, classes, units, noise, stored, novelty, pool)


def _check_factors(contents: Contents, arrays: Arrays, Z: NDArray[Any]) -> None:
    """Check the factor of k(Z, Z) of each latent function."""
    kernel, at = contents.kernel, "prior.kernel"
    logs = {name: a for name, a in arrays.items() if name.startswith(at) and ".log_" in name}
    found = []
    for c in range(len(arrays["prior_lower"])):
        own = arrays | {name: a[min(c, len(a) - 1)][None] for name, a in logs.items()}
        points = Z[min(c, len(Z) - 1)]
        formula = _make_formula(kernel, at, own)
        found.append(formula.cross(formula.prepare(points[None]), points)[0])
    check_factor(np.stack(found), arrays["prior_lower"])


def _make_formula(kernel: dict[str, Any], at: str, arrays: Arrays) -> Formula:
    name, inner = kernel["kernel"], kernel["arguments"]
    if name in PAIRS:
        parts = (_make_formula(inner[part], f"{at}.{part}", arrays) for part in ("k1", "k2"))
        return formulas.PairFormula(PAIRS[name], *parts)
    if name == "Constant":
        return formulas.ConstantFormula(arrays[f"{at}.log_variance"])
    log_scale, group = arrays[f"{at}.log_lengthscale"], arrays.get(f"{at}.group")
    log_scale = log_scale if group is None else log_scale[:, group]
    scale = Scale(arrays[f"{at}.center"], arrays[f"{at}.unit"], log_scale, arrays[f"{at}.log_variance"])
    if name == "Linear":
        reach = arrays.get(f"{at}.square_reach")
        fade = None if reach is None else np.full((len(scale.unit), 1), 1 / reach)
        return formulas.LinearFormula(scale, fade=fade)
    logs = (arrays[f"{at}.log_alpha"],) if name == "RationalQuadratic" else ()
    return formulas.StationaryFormula(formulas.SHAPES[name], scale, logs)
