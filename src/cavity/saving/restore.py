"""The posterior, its prior, its likelihood and its pool: from the arrays of a file to a
record that predicts, to torch and back.

Every shape has been checked before. Only a kernel or a likelihood that the schema does
not know loads torch.
"""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.lazy import Later
from cavity.common.namespaces import NUMPY
from cavity.common.types import Flags
from cavity.engine.kernels import formulas
from cavity.engine.kernels.formulas import Formula, Scale
from cavity.engine.likelihoods.outcomes import make_outcome
from cavity.errors import BadFile
from cavity.pool.networks import LinearModel, Network
from cavity.pool.pool import NO_POOL, Gate, Member, Pool
from cavity.pool.tree_ensembles import Forest
from cavity.prediction.model import FittedModel, Modules, make_model, settle_kernel
from cavity.prediction.targets import STORED, TrainingRows, condition
from cavity.saving.checking import Arrays, Contents, Meta, check_factor, walk
from cavity.saving.ranges import LINEAR
from cavity.saving.schema import LINEAR_MODEL, NETWORK, TREES
from cavity.saving.serialize import Unpacking, from_json, read_array, to_json

if TYPE_CHECKING:
    from torch import Tensor

    from cavity.engine.kernels.prior import Prior
    from cavity.engine.likelihoods import Likelihood

DECLARED: dict[type, tuple[Any, ...]] = {
    Forest: TREES,
    LinearModel: LINEAR_MODEL,
    Network: NETWORK,
}
PAIRS = {"Sum": operator.add, "Product": operator.mul}
# arguments of kernels that are not pairs
NUMBERS = {"lengthscale", "variance", "alpha"}


def restore_model(
    arrays: Arrays, meta: Meta, contents: Contents, kernel: Any = None
) -> FittedModel:
    """Return the model of a file; `kernel` is one of the user's own."""
    n_classes = contents.sizes["classes"] or None
    if n_classes is None:
        pool = NO_POOL
    else:
        pool = restore_pool(arrays, meta.get("pool"))
    modules = Later(lambda: _restore_modules(arrays, meta, contents, kernel))
    about = meta["likelihood"]
    name = about.get("likelihood")
    arguments = about.get("arguments")
    outcome: Any = None
    if isinstance(arguments, dict) and about.keys() == {"likelihood", "arguments"}:
        outcome = make_outcome(
            str(name), arguments, _parts(arrays, "factor."), n_classes
        )
    if outcome is None:
        outcome = modules.get().likelihood
    of_class = None
    if _is_known(contents.kernel):
        of_class = partial(_make_formula, contents.kernel, arrays)
    if of_class is None:
        formula = _make_own_formula(modules)
    else:
        formula = of_class()
    if meta["prior"].get("frequencies"):
        formula = _in_frequency_domain(formula)
    made = make_model(
        arrays,
        meta["prior"]["learn"],
        formula,
        contents.sizes["C"],
        outcome,
        modules,
        pool,
    )
    _check_factors(made, of_class)
    return made


def _parts(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): a
        for name, a in arrays.items()
        if name.startswith(prefix)
    }


def _is_known(kernel: Any) -> bool:
    """Return whether all parts of a kernel are of the library, with numbers as
    arguments.
    """
    return all(
        name is not None and _is_plain(name, arguments)
        for _, name, arguments in walk(kernel)
    )


def _is_plain(name: str, arguments: dict[str, Any]) -> bool:
    if name in PAIRS:
        return arguments.keys() == {"k1", "k2"}
    numbers = {
        key: value
        for key, value in arguments.items()
        if key != "fades" and value is not None
    }
    plain = all(type(v) in (int, float) and 0 < v < math.inf for v in numbers.values())
    return (
        plain
        and numbers.keys() <= NUMBERS
        and isinstance(arguments.get("fades", False), bool)
    )


def _make_formula(
    kernel: Meta, arrays: Arrays, c: int | None = None, at: str = "prior.kernel"
) -> Formula:
    """Return the formula of a kernel with the numbers of a file, or with those of one
    latent function.
    """
    name = kernel["kernel"]
    inner = kernel["arguments"]
    if name in PAIRS:
        parts = (
            _make_formula(inner[part], arrays, c, f"{at}.{part}")
            for part in ("k1", "k2")
        )
        return formulas.PairFormula(PAIRS[name], *parts)

    def log(of: str) -> NDArray[Any]:
        found = NUMPY.array(arrays[f"{at}.log_{of}"])
        if c is None:
            return found
        return found[min(c, len(found) - 1)][None]

    if name == "Constant":
        return formulas.ConstantFormula(log("variance"))
    log_scale = log("lengthscale")
    group = arrays.get(f"{at}.group")
    center, unit = (NUMPY.array(arrays[f"{at}.{part}"]) for part in ("center", "unit"))
    scale = Scale(
        center,
        unit,
        log_scale if group is None else log_scale[:, group],
        log("variance"),
    )
    if name == "Linear":
        reach = arrays.get(f"{at}.square_reach")
        fade = None
        if reach is not None:
            fade = np.full((len(unit), 1), 1 / float(reach))
        single = arrays[f"{at}.center"].dtype == np.float32
        far = formulas.ROW_REACH_SINGLE if single else formulas.ROW_REACH
        return formulas.LinearFormula(scale, far, fade)
    logs: tuple[Any, ...] = ()
    if name == "RationalQuadratic":
        logs = (log("alpha"),)
    return formulas.StationaryFormula(formulas.SHAPES[name], scale, logs)


def _check_factors(
    model: FittedModel, of_class: Callable[[int], Formula] | None
) -> None:
    """Check the factor of k(Z, Z) of each latent function; that of frequencies is I."""
    Z = NUMPY.double(model.Z)
    if model.spectral:
        check_factor(np.eye(Z.shape[-2])[None], model.prior_lower)
        return
    found = []
    for c in range(len(model.prior_lower)):
        points = Z[min(c, len(Z) - 1)]
        if of_class is None:
            formula = model.formula
        else:
            formula = of_class(c)
        k = formula.cross(formula.prepare(points[None]), points)
        found.append(k[min(c, len(k) - 1)])
    check_factor(np.stack(found), model.prior_lower)


def _in_frequency_domain(formula: Formula) -> Formula:
    """Return the formula of inducing values that are weights of cosines and sines."""
    if isinstance(formula, formulas.StationaryFormula):
        return formulas.SpectrumFormula(formula.scale)
    if isinstance(formula, formulas.SpectrumFormula):
        return formula
    raise BadFile("the kernel of a sparse spectrum is not stationary.")


def restore_rows(arrays: Arrays, tol: float, model: FittedModel) -> TrainingRows:
    """Return the training rows of a file."""
    rows = condition(model, *(arrays[f"rows.{name}"] for name in STORED), tol=tol)
    if not len(rows.y) or not np.isfinite(rows.lower).all():
        raise BadFile("the training rows do not fit the model.")
    return rows


def _make_own_formula(modules: Later[Modules]) -> Formula:
    return modules.get().prior.formula(NUMPY)


# --- pool ------------------------------------------------------------------------------------------------


def describe_pool(pool: Pool) -> dict[str, Any] | None:
    """Return the part of a pool that is JSON, next to its arrays; None without a pool."""
    if pool.is_trivial:
        return None
    kinds = {Network: None, LinearModel: LINEAR}
    boosted = [
        m.boosted if isinstance(m, Forest) else kinds[type(m)] for m in pool.members
    ]
    return {
        "weight": pool.weight,
        "weights": pool.weights,
        "boosted": boosted,
        "gate": to_json(pool.gate),
    }


def list_arrays(model: FittedModel) -> dict[str, Any]:
    """Return the arrays of a model and of the members of its pool by the names of the
    schema.
    """
    found: dict[str, Any] = model.prior.state_dict(prefix="prior.")
    found |= {name: getattr(model, name) for name in ("prior_lower", "mean", "lower")}
    found |= {
        f"factor.{name}": value for name, value in model.likelihood.state().items()
    }
    for i, member in enumerate(model.pool.members):
        if isinstance(member, Forest):
            member = member._replace(
                threshold=np.where(_find_leaves(member), 0, member.threshold)
            )
        names = [tensor.name.removesuffix("?") for tensor in DECLARED[type(member)]]
        own = {name: np.ascontiguousarray(getattr(member, name)) for name in names}
        found |= {
            f"pool.{i}.{name}": a
            for name, a in own.items()
            if a.size or name not in ("block", "code")
        }
    return found


def _find_leaves(forest: Forest) -> Flags:
    return np.asarray(forest.child == np.arange(len(forest.child)))


def restore_pool(arrays: Arrays, about: Any) -> Pool:
    if about is None:
        return NO_POOL
    members = tuple(
        _restore_member(arrays, f"pool.{i}.", b) for i, b in enumerate(about["boosted"])
    )
    gate = from_json(Gate, about.get("gate"), read_array)
    return Pool(about["weight"], members, tuple(about["weights"]), gate)


def _restore_member(arrays: Arrays, prefix: str, boosted: bool | str | None) -> Member:
    of = {
        name.removeprefix(prefix): a
        for name, a in arrays.items()
        if name.startswith(prefix)
    }
    if boosted is None:
        return Network(**of)
    if boosted == LINEAR:
        return LinearModel(**of)
    forest = Forest(**of, boosted=boosted is True)
    threshold = np.where(_find_leaves(forest), np.inf, forest.threshold).astype(
        forest.threshold.dtype
    )
    forest = forest._replace(threshold=threshold)
    if not _are_apart(forest):
        raise BadFile("the trees of the pool do not fit together.")
    return forest


def _are_apart(forest: Forest) -> bool:
    """Return whether the nodes of each tree follow its root, and their children follow
    them.
    """
    own = np.arange(len(forest.child))
    ends = np.append(forest.root, len(forest.child))
    size = np.diff(ends)
    if forest.root[0] != 0 or not (size > 0).all():
        return False
    last = forest.child + ~_find_leaves(forest)
    return bool(
        (forest.child >= own).all() and (last < np.repeat(ends[1:], size)).all()
    )


# --- torch -------------------------------------------------------------------------------------------------


def _restore_modules(
    arrays: Arrays, meta: Meta, contents: Contents, kernel: Any
) -> Modules:
    """Make the prior and the likelihood of a file in torch."""
    import torch

    tensors = {name: torch.from_numpy(a.copy()) for name, a in arrays.items()}
    with torch.inference_mode(False):  # parameters that a later fit can learn
        likelihood = _restore_likelihood(
            tensors, meta, contents.sizes["classes"] or None
        )
        made = Unpacking(arrays, kernel).unpack(contents.kernel)
        prior = _restore_prior(tensors, meta["prior"], copy.deepcopy(made), contents)
        settle_kernel(prior, likelihood)
    return Modules(prior, likelihood)


def _restore_prior(
    tensors: dict[str, Tensor], about: Meta, kernel: Any, contents: Contents
) -> Prior:
    import torch

    from cavity.common.column_statistics import Columns
    from cavity.engine.kernels import Kernel
    from cavity.engine.kernels.prior import Prior
    from cavity.engine.kernels.spectrum import Spectrum

    learn = frozenset(about["learn"])
    dtype = tensors["mean"].dtype
    if isinstance(kernel, Kernel):
        groups = (
            f"{name}.group" for name, _ in kernel.named_modules(prefix="prior.kernel")
        )
        group = next(
            (tensors[name].numpy().copy() for name in groups if name in tensors), None
        )
        where, wide = (
            tensors[f"prior.{name}"].double().numpy() for name in ("center", "spread")
        )
        kernel.bind(contents.sizes["K"], Columns(where, wide, 1.0, group))
    kernel.requires_grad_("kernel" in learn)
    noise = tensors["prior.log_noise" if "noise" in learn else "prior.fixed_noise"]
    Z, center, spread = (
        torch.ones_like(tensors[f"prior.{n}"]) for n in ("inducing", "center", "spread")
    )
    kind = Spectrum if about.get("frequencies") else Prior
    prior = kind(
        kernel, Z, torch.ones_like(noise), center, spread, contents.sizes["C"], learn
    ).to(dtype)
    try:
        prior.load_state_dict(_parts(tensors, "prior."))
    except RuntimeError as error:  # a kernel of the user's own has its own names
        said = f"the file's values do not fit this kernel: {error!s:.300}"
        raise BadFile(f"{said}. Create kernel= as for the fit.") from None
    return prior


def _restore_likelihood(
    tensors: dict[str, Tensor], meta: Meta, n_classes: int | None
) -> Likelihood:
    """Make the likelihood of a file; `n_classes` is None for a regressor."""
    from cavity.engine.likelihoods import Likelihood

    made: Any = Unpacking({name: t.numpy() for name, t in tensors.items()}).unpack(
        meta["likelihood"]
    )
    if not isinstance(made, Likelihood):
        raise BadFile("the likelihood is not one.")
    if n_classes is not None:
        if made.two_classes != (n_classes == 2):
            raise BadFile(
                f"the likelihood {type(made).__name__} does not fit "
                f"{n_classes} classes."
            )
        made = made.bind(n_classes)
    made.load_state(_parts(tensors, "factor."), tensors["mean"].dtype)
    return made


def count_kernels(kernel: Any) -> int:
    """Return how many sets of parameters the kernel has: one per class, or one that
    they share.
    """
    from torch import nn

    from cavity.engine.kernels import Kernel

    parts: Any = ()
    if isinstance(kernel, nn.Module):
        parts = kernel.modules()
    logs = [
        p
        for part in parts
        if isinstance(part, Kernel)
        for p in part.parameters(recurse=False)
    ]
    return max((len(p) for p in logs if p.ndim), default=1)
