"""Read the models that default settings make into NumPy. Any other file, or a damaged one, is left to the full reader.

The names, types and shapes of all tensors must be those of such a model before a tensor is read; then come the digest, and the
checks of values that the full reader makes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity import persist
from cavity.errors import CavityError
from cavity.intake.validation import Features
from cavity.kernels import formulas
from cavity.kernels.formulas import Formula, Knots, Scale
from cavity.modelfile import facts
from cavity.modelfile.pools import restore_mean, restore_pool
from cavity.prediction.latent import LatentModel
from cavity.prediction.pool import NO_POOL, Pool
from cavity.prior_mean import NO_MEAN, PriorMean

Arrays = dict[str, NDArray[Any]]
Declared = dict[str, persist.Entry]
Shapes = list[tuple[int, ...]]

METHODS = {
    "model": ("auto", "ep", "sep"),
    "regressor": ("exact", "fitc", "vi", "svi"),
}  # which predict from q alone
DEFAULT = {"kernel": "RBF", "number": 0, "arguments": {}}
LINEAR = {"kernel": "Linear", "number": 1, "arguments": {}}
PAIRS = {"Sum": np.add, "Product": np.multiply}
SCALED = {"lengthscale", "variance"}
KERNEL_ARGUMENTS = {
    "Sum": {"k1", "k2"},
    "Product": {"k1", "k2"},
    "Ranked": {"base", "columns", "knots", "scores"},
    "RationalQuadratic": {*SCALED, "alpha"},
    "Constant": {"variance"},
}
TREES = ("pool.", "prior_mean.")  # whose arrays `pools` checks
MOST_NUMBERS = 10_000_000  # of all trees
MOST_SCORES = 100
GROWING_SCALARS = ("clock", "damping", "jitter", "rate", "total")


class Unknown(Exception):
    """The file is not of the kind that this module reads."""


class ArrayRecord(NamedTuple):
    """What predictions need of a model file."""

    model: LatentModel
    features: Features
    classes: NDArray[Any] | None  # of a classifier
    units: tuple[float, float]  # shift and scale of a regressor's targets
    noise: float  # variance of a regressor's targets
    stored: persist.StoredArrays  # the whole file, for the full reader
    pool: Pool = NO_POOL
    prior_mean: PriorMean = NO_MEAN


def read_array_record(path: str | Path) -> ArrayRecord | None:
    """Return the record of a model; None if the file needs the full reader, which also says what is wrong with it."""
    try:
        return _read(persist.read_arrays(path, *facts.KINDS, check=_check))
    except (Unknown, CavityError, *persist.DAMAGE):
        return None


def _expect(holds: Any) -> None:
    if not holds:
        raise Unknown


def _check(declared: Declared, meta: dict[str, Any]) -> None:
    """Raise Unknown unless all tensors are those of a known model, of known types and shapes."""
    try:
        _check_meta(meta)
        known = dict(_shapes(declared, meta))
        trees = (math.prod(entry.shape) for name, entry in declared.items() if name.startswith(TREES))
        _expect(sum(trees) <= MOST_NUMBERS)
        for name, entry in declared.items():
            if name.startswith(TREES):
                _expect(entry.dtype in ("F64", "F32", "I64", "I32"))
                continue
            integer = name.endswith((".group", ".place", "growing.epoch"))
            _expect(entry.dtype == ("I64" if integer else "F64") and entry.shape in known[name])
    except persist.DAMAGE:
        raise Unknown from None


def _check_meta(meta: dict[str, Any]) -> None:
    kind, arguments = meta["kind"], meta["arguments"]
    _expect(meta["format"] == persist.FORMAT and arguments["method"] in METHODS[kind])
    _expect(not meta["prior"]["spectrum"] and isinstance(meta["prior"]["learn"], list))
    _expect(all(_is_plain(value) for name, value in arguments.items() if name != "kernel"))
    _expect(set(meta["likelihood"]) == {"likelihood", "arguments"})
    likelihood, given = meta["likelihood"]["likelihood"], meta["likelihood"]["arguments"]
    if kind == "regressor":
        _expect(likelihood == "Gaussian" and meta["classes"] is None and not given["projected"])
        _expect(set(given) == {"noise", "learn", "projected"} and _is_positive(given["noise"]))
        _expect(isinstance(given["learn"], bool) and isinstance(given["projected"], bool))
    else:
        n = len(facts.unpack_labels(meta["classes"]))
        _expect((likelihood, given) in (("BinaryProbit", {}), ("ProbitPairs", {"n_classes": n})))
        _expect((likelihood == "BinaryProbit") == (n == 2) and meta["units"] is None)


def _is_count(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _is_plain(value: Any) -> bool:
    """Return whether an argument is a number, a text, something that is not stored, or a list of such."""
    if not isinstance(value, dict):
        return value is None or isinstance(value, bool | int | float | str)
    ((kind, content),) = value.items()
    if kind in ("list", "tuple"):
        return isinstance(content, list) and all(map(_is_plain, content))
    return bool(kind == "left out")


def _shapes(declared: Declared, meta: dict[str, Any]) -> Iterator[tuple[str, Shapes]]:
    """Yield the names that the tensors of this model may have, and their shapes."""
    C = _count_latent(meta)
    D, M = declared["prior.center"].shape[0], declared["prior.inducing"].shape[-2]
    _expect(D * M > 0)
    yield "mean", [(C, M)]
    yield "lower", [(C, M, M)]
    yield "prior_lower", [(1, M, M), (C, M, M)]
    yield "prior.inducing", [(1, M, D), (C, M, D)]
    yield from _alike("prior", ("center", "spread"), (D,))
    yield f"prior.{_name_noise(meta)}", [(1,), (C,)]
    yield "feature_relevance", [(D,), (_count_columns(meta, D),)]
    if meta["kind"] == "regressor":
        yield "factor.log_noise", [(1,)]
    K = meta["prior"]["kernels"]
    _expect(K in (1, C))
    yield from _kernel_shapes(_find_kernel(declared, meta), "prior.kernel", declared, (K, D))
    if meta["growing"] is not None:
        _check_growing(meta["growing"], C)
        yield from _growing_shapes(declared, meta["prior"]["learn"], (C, M, D))


def _alike(prefix: str, names: Iterable[str], shape: tuple[int, ...]) -> Iterator[tuple[str, Shapes]]:
    return ((f"{prefix}.{name}", [shape]) for name in names)


def _count_latent(meta: dict[str, Any]) -> int:
    n = 0 if meta["classes"] is None else len(meta["classes"]["values"])
    return n if n > 2 else 1


def _count_columns(meta: dict[str, Any], D: int) -> int:
    return D if meta["preparation"] is None else len(meta["preparation"]["features"])


def _name_noise(meta: dict[str, Any]) -> str:
    return "log_noise" if "noise" in meta["prior"]["learn"] else "fixed_noise"


def _find_kernel(names: Any, meta: dict[str, Any]) -> dict[str, Any]:
    """Return the kernel as JSON: the selected one, the given one, or the default."""
    selected = None if meta["selection"] is None else meta["selection"]["kernel"]
    given = meta["arguments"]["kernel"]
    _expect(given is None or selected is None)
    found: dict[str, Any] | None = given if selected is None else selected
    if found is not None:
        return found
    if "prior.kernel.k2.log_lengthscale" not in names:
        return DEFAULT
    return {"kernel": "Sum", "number": 2, "arguments": {"k1": DEFAULT, "k2": LINEAR}}


def _kernel_shapes(
    kernel: dict[str, Any], at: str, declared: Declared, size: tuple[int, int]
) -> Iterator[tuple[str, Shapes]]:
    (K, D), name, inner = size, kernel["kernel"], kernel["arguments"]
    _expect(set(kernel) == {"kernel", "number", "arguments"} and _is_count(kernel["number"], 100))
    _expect(set(inner) <= KERNEL_ARGUMENTS.get(name, SCALED))
    if name in PAIRS:
        for part in ("k1", "k2"):
            yield from _kernel_shapes(inner[part], f"{at}.{part}", declared, size)
        return
    if name == "Ranked":
        d, pieces = declared[f"{at}.left"].shape
        yield from _alike(f"{at}", ("left", "height", "slope"), (d, pieces))
        yield from _alike(f"{at}", ("place", "last"), (d,))
        for part in ("knots", "scores"):
            yield inner[part]["array"], [(pieces + 1, d)]
        yield from _kernel_shapes(inner["base"], f"{at}.base", declared, size)
        return
    _expect(name in (*formulas.SHAPES, "Linear", "Constant"))
    for argument, value in inner.items():
        _expect(_is_positive(value) or (value is None and argument == "lengthscale"))
    yield f"{at}.log_variance", [(K,)]
    if name == "Constant":
        return
    yield from _alike(f"{at}", ("center", "unit", "group"), (D,))
    grouped = f"{at}.group" in declared
    yield f"{at}.log_lengthscale", [(K, declared[f"{at}.log_lengthscale"].shape[1] if grouped else D)]
    if name == "RationalQuadratic":
        yield f"{at}.log_alpha", [(K,)]


def _check_growing(about: dict[str, Any], C: int) -> None:
    """Check what `partial_fit` continues from; predictions do not use it."""
    sites = about["sites"]
    numbers = (sites["unit"], about["distance"], about["lightest"], about["heaviest"])
    _expect(all(_is_positive(value) for value in numbers))
    flags = (sites["weighted"], sites["tempers"], about["exact"], about["pooled"])
    _expect(all(isinstance(value, bool) for value in flags))
    _expect(_is_count(about["optimiser"], 8) and _is_count(about["width"], 2 * C))


def _count_learnt(declared: Declared, learn: list[str], part: str) -> int:
    """Return how many learnt numbers a part of the prior has."""
    prefix = {"kernel": "prior.kernel.", "noise": "prior.log_noise", "inducing": "prior.inducing"}[part]
    found = (
        e for name, e in declared.items() if name.startswith(prefix) and (part != "kernel" or ".log_" in name)
    )
    return sum(math.prod(entry.shape) for entry in found) if part in learn else 0


def _growing_shapes(
    declared: Declared, learn: list[str], size: tuple[int, int, int]
) -> Iterator[tuple[str, Shapes]]:
    C, M, D = size
    yield "growing.P", [(C, M, M)]
    yield "growing.h", [(C, M)]
    yield "growing.counts", [(C,)]
    yield from _alike("growing", ("center", "spread"), (D,))
    yield from _alike("growing", (*GROWING_SCALARS, "epoch"), ())
    logs = sum(_count_learnt(declared, learn, name) for name in ("kernel", "noise"))
    theta = (logs + _count_learnt(declared, learn, "inducing"),)
    yield "growing.theta", [theta]
    yield "growing.prior.mean", [(logs,)]
    yield from ((name, [(), theta]) for name in declared if name.startswith("growing.optimiser."))


def _read(stored: persist.StoredArrays) -> ArrayRecord:
    arrays, meta = stored
    _expect(all(np.isfinite(a).all() for a in arrays.values()))
    center = arrays["prior.center"]
    _check_groups(arrays)
    _expect(all((a > 0).all() for name, a in arrays.items() if name.endswith((".unit", ".spread"))))
    D = len(center)
    Z = arrays["prior.inducing"]
    if "inducing" in meta["prior"]["learn"]:
        Z = center + arrays["prior.spread"] * Z
    noise = arrays[f"prior.{_name_noise(meta)}"]
    classifies = meta["kind"] == "model"
    n_classes = len(meta["classes"]["values"]) if classifies else None
    formula = _make_formula(_find_kernel(arrays, meta), "prior.kernel", arrays, D)
    model = LatentModel(
        formula=formula,
        points=formula.prepare(Z),
        noise=np.exp(noise) if _name_noise(meta) == "log_noise" else noise,
        prior_lower=arrays["prior_lower"],
        mean=arrays["mean"],
        lower=arrays["lower"],
    )
    _expect(not formulas.are_far(model.points))
    for factor in (model.lower, model.prior_lower):
        _expect((np.diagonal(factor, axis1=-2, axis2=-1) > 0).all())
    pool, prior_mean = NO_POOL, NO_MEAN
    if n_classes is not None:
        pool = restore_pool(arrays, meta["pool"], D, n_classes)
        prior_mean = restore_mean(arrays, meta["prior_mean"], D, n_classes)
    features = facts.read_features(meta, facts.KINDS[meta["kind"]].owner, D)
    _check_rest(arrays, meta, features, n_classes)
    classes = facts.unpack_labels(meta["classes"]) if classifies else None
    units = (0.0, 1.0) if classifies else facts.read_units(*meta["units"])
    of_targets = 0.0 if classifies else float(np.exp(arrays["factor.log_noise"][0]))
    return ArrayRecord(model, features, classes, units, of_targets, stored, pool, prior_mean)


def _check_rest(arrays: Arrays, meta: dict[str, Any], features: Features, n_classes: int | None) -> None:
    """Check what predictions do not use, as the full reader does."""
    facts.history(meta["history"])
    facts.texts(meta["warnings"])
    facts.read_class_prior(meta["class_prior"], n_classes)
    facts.read_estimate(meta["estimate"], n_classes)
    facts.read_importance(meta["importance"], features)
    evidence, selection = meta["scalars"]["log_marginal_likelihood_"], meta["selection"]
    _expect(evidence is None or math.isfinite(facts.finite(evidence)))
    _expect(isinstance(meta["notes"], dict))
    if selection is not None:
        _expect(isinstance(selection["robust"], bool) and len(selection["scores"]) <= MOST_SCORES)
    if "feature_relevance" in arrays:
        _expect(math.isclose(float(arrays["feature_relevance"].sum()), 1.0, rel_tol=1e-6))


def _check_groups(arrays: Arrays) -> None:
    """Check that all parts of the kernel share lengthscales among the same columns, or none does."""
    groups = [a for name, a in arrays.items() if name.endswith(".group")]
    scaled = sum(name.endswith(".log_lengthscale") for name in arrays)
    _expect(len(groups) in (0, scaled) and all(np.array_equal(g, groups[0]) for g in groups))


def _make_formula(kernel: dict[str, Any], at: str, arrays: Arrays, D: int) -> Formula:
    name, inner = kernel["kernel"], kernel["arguments"]
    if name in PAIRS:
        parts = (_make_formula(inner[part], f"{at}.{part}", arrays, D) for part in ("k1", "k2"))
        return formulas.PairFormula(PAIRS[name], *parts)
    if name == "Ranked":
        knots = _read_knots(inner, at, arrays, D)
        return formulas.MappedFormula(_make_formula(inner["base"], f"{at}.base", arrays, D), knots.score)
    if name == "Constant":
        return formulas.ConstantFormula(arrays[f"{at}.log_variance"])
    log_scale = arrays[f"{at}.log_lengthscale"]
    if f"{at}.group" in arrays:
        group = arrays[f"{at}.group"]
        _expect(set(group.tolist()) == set(range(log_scale.shape[1])))
        log_scale = log_scale[:, group]
    scale = Scale(arrays[f"{at}.center"], arrays[f"{at}.unit"], log_scale, arrays[f"{at}.log_variance"])
    if name == "Linear":
        return formulas.LinearFormula(scale)
    logs = (arrays[f"{at}.log_alpha"],) if name == "RationalQuadratic" else ()
    return formulas.StationaryFormula(formulas.SHAPES[name], scale, logs)


def _read_knots(given: dict[str, Any], at: str, arrays: Arrays, D: int) -> Knots:
    """Return the knots, which must be those of the kernel's arguments."""
    found = Knots(*(arrays[f"{at}.{part}"] for part in Knots._fields))
    place = given["columns"]["list"]
    _expect(all(_is_count(d, D - 1) for d in place) and len(set(place)) == len(place))
    knots, scores = (arrays[given[name]["array"]] for name in ("knots", "scores"))
    _expect(found.place.tolist() == place and (np.diff(knots, axis=0) >= 0).all())
    same = ((found.left, knots[:-1].T), (found.last, knots[-1]), (found.height, scores[:-1].T))
    _expect(all(np.array_equal(a, b) for a, b in same))
    return found
