"""Restore a fitted model from the arrays of a file.

Shapes were checked before. Only a kernel or a likelihood that the schema does not know
loads torch.
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
from cavity.engine.kernels import formulas
from cavity.engine.kernels.formulas import Formula, Scale
from cavity.engine.likelihoods.outcomes import make_outcome
from cavity.errors import BadFile
from cavity.pool.pool import NO_POOL
from cavity.prediction.model import FittedModel, Modules, make_model, settle_kernel
from cavity.prediction.targets import STORED, TrainingRows, condition
from cavity.saving.checking import Arrays, Contents, Meta, check_factor, walk
from cavity.saving.pool_arrays import restore_pool, select_arrays
from cavity.saving.serialize import Unpacking

if TYPE_CHECKING:
    from torch import Tensor

    from cavity.common.column_statistics import Columns
    from cavity.engine.kernels.prior import Prior
    from cavity.engine.likelihoods import Likelihood

PAIRS = {"Sum": operator.add, "Product": operator.mul}
# numeric arguments of kernels that are not pairs
NUMBERS = {"lengthscale", "variance", "alpha", "period"}
# what stands in place of a number; its values do not matter for predictions
SETTINGS = ("Fixed", "Bounded", "LogNormal", "Normal", "Gamma")


def restore_model(
    arrays: Arrays, meta: Meta, contents: Contents, kernel: Any = None
) -> FittedModel:
    """Return the model of a file; `kernel`: a kernel of the user's own."""
    n_classes = contents.sizes["classes"] or None
    modules = Later(lambda: _restore_modules(arrays, meta, contents, kernel))
    about = meta["likelihood"]
    arguments = about.get("arguments")
    outcome: Any = None
    if isinstance(arguments, dict) and about.keys() == {"likelihood", "arguments"}:
        state = select_arrays(arrays, "factor.")
        outcome = make_outcome(str(about["likelihood"]), arguments, state, n_classes)
    if outcome is None:
        outcome = modules.get().likelihood

    of_class = None
    if _is_known(contents.kernel):
        of_class = partial(_make_formula, contents.kernel, arrays)
    formula = of_class() if of_class else modules.get().prior.formula(NUMPY)
    if meta["prior"].get("frequencies"):
        formula = _in_frequency_domain(formula)
    model = make_model(
        arrays,
        meta["prior"]["learn"],
        formula,
        contents.sizes["C"],
        outcome,
        modules=modules,
        pool=restore_pool(arrays, meta.get("pool")) if n_classes else NO_POOL,
    )
    _check_factors(model, of_class)
    return model


def _is_known(kernel: Any) -> bool:
    """Return whether the library has all parts of a kernel, and arguments are numbers."""
    return all(
        name is not None and _is_plain(name, arguments)
        for _, name, arguments in walk(kernel)
    )


def _is_plain(name: str, arguments: dict[str, Any]) -> bool:
    if name in PAIRS:
        return arguments.keys() == {"k1", "k2"}

    for key, value in arguments.items():
        if key == "fades":
            plain = isinstance(value, bool)
        elif (
            key == "columns" or (key in NUMBERS and _is_setting(value)) or value is None
        ):
            plain = True
        else:
            is_number = type(value) in (int, float) and 0 < value < math.inf
            plain = key in NUMBERS and is_number

        if not plain:
            return False

    return True


def _is_setting(value: Any) -> bool:
    return isinstance(value, dict) and value.get("parameter") in SETTINGS


def _make_formula(
    kernel: Meta, arrays: Arrays, c: int | None = None, at: str = "prior.kernel"
) -> Formula:
    """Return the formula of a kernel for all latent functions, or for the one at c."""
    name = kernel["kernel"]
    inner = kernel["arguments"]
    if name in PAIRS:
        k1 = _make_formula(inner["k1"], arrays, c, f"{at}.k1")
        k2 = _make_formula(inner["k2"], arrays, c, f"{at}.k2")
        return formulas.PairFormula(PAIRS[name], k1, k2)

    def log(parameter: str) -> NDArray[Any]:
        values = NUMPY.array(arrays[f"{at}.log_{parameter}"])
        if c is None:
            return values

        return values[min(c, len(values) - 1)][None]

    if name == "Constant":
        return formulas.ConstantFormula(log("variance"))

    formula = _make_scaled(name, arrays, at, log)
    index = arrays.get(f"{at}.index")
    if index is None:
        return formula

    return formulas.ColumnsFormula(formula, index)


def _make_scaled(
    name: str, arrays: Arrays, at: str, log: Callable[[str], NDArray[Any]]
) -> Formula:
    """Return the formula of a kernel with lengthscales, for the columns that it sees.

    `log` returns the logarithms of a parameter.
    """
    group = arrays.get(f"{at}.group")

    def expand(values: NDArray[Any]) -> NDArray[Any]:
        return values if group is None else values[:, group]

    log_scale = expand(log("lengthscale"))
    center = NUMPY.array(arrays[f"{at}.center"])
    unit = NUMPY.array(arrays[f"{at}.unit"])
    scale = Scale(center, unit, log_scale, log("variance"))
    if name == "Linear":
        reach = arrays.get(f"{at}.square_reach")
        fade = None
        if reach is not None:
            fade = np.full((len(unit), 1), 1 / float(reach))
        single = arrays[f"{at}.center"].dtype == np.float32
        far = formulas.ROW_REACH_SINGLE if single else formulas.ROW_REACH
        return formulas.LinearFormula(scale, far, fade)

    if name == "Periodic":
        return formulas.PeriodicFormula(scale, expand(log("period")))

    logs: tuple[Any, ...] = ()
    if name == "RationalQuadratic":
        logs = (log("alpha"),)
    return formulas.StationaryFormula(formulas.SHAPES[name], scale, logs)


def _check_factors(
    model: FittedModel, of_class: Callable[[int], Formula] | None
) -> None:
    """Check the factor of k(Z, Z) of each latent function; I for frequencies."""
    Z = NUMPY.double(model.Z)
    if model.spectral:
        check_factor(np.eye(Z.shape[-2])[None], model.prior_lower)
        return

    covariances = []
    for c in range(len(model.prior_lower)):
        points = Z[min(c, len(Z) - 1)]
        formula = of_class(c) if of_class else model.formula
        k = formula.cross(formula.prepare(points[None]), points)
        covariances.append(k[min(c, len(k) - 1)])

    check_factor(np.stack(covariances), model.prior_lower)


def _in_frequency_domain(formula: Formula) -> Formula:
    """Return the formula of inducing values that are weights of cosines and sines."""
    if isinstance(formula, formulas.StationaryFormula):
        return formulas.SpectrumFormula(formula.scale)
    if isinstance(formula, formulas.SpectrumFormula):
        return formula

    raise BadFile("the model has a sparse spectrum, but its kernel is not stationary.")


def restore_rows(arrays: Arrays, tol: float, model: FittedModel) -> TrainingRows:
    """Return the training rows of a file."""
    rows = condition(model, *(arrays[f"rows.{name}"] for name in STORED), tol=tol)
    if not len(rows.y) or not np.isfinite(rows.lower).all():
        raise BadFile("the training rows do not fit the model.")

    return rows


# ---------------------------------------------------------------- torch


def _restore_modules(
    arrays: Arrays, meta: Meta, contents: Contents, kernel: Any
) -> Modules:
    """Make the prior and the likelihood of a file in torch."""
    import torch

    tensors = {name: torch.from_numpy(a.copy()) for name, a in arrays.items()}
    n_classes = contents.sizes["classes"] or None
    with torch.inference_mode(False):  # parameters that a later fit can learn
        likelihood = _restore_likelihood(tensors, meta, n_classes, contents.sizes["C"])
        own = copy.deepcopy(Unpacking(arrays, kernel).unpack(contents.kernel))
        prior = _restore_prior(tensors, meta["prior"], own, contents)
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
        center = tensors["prior.center"].double().numpy()
        spread = tensors["prior.spread"].double().numpy()
        columns = Columns(center, spread, 1.0)
        _bind_kernel(kernel, tensors, contents.sizes["K"], columns)

    if "kernel" not in learn:
        kernel.requires_grad_(False)
    noise = tensors["prior.log_noise" if "noise" in learn else "prior.fixed_noise"]
    kind = Spectrum if about.get("frequencies") else Prior
    prior = kind(
        kernel,
        torch.ones_like(tensors["prior.inducing"]),
        torch.ones_like(noise),
        center=torch.ones_like(tensors["prior.center"]),
        spread=torch.ones_like(tensors["prior.spread"]),
        n_latent=contents.sizes["C"],
        learn=learn,
    ).to(dtype)
    try:
        prior.load_state_dict(select_arrays(tensors, "prior."))
    except RuntimeError as error:  # a kernel of the user's own has its own names
        said = f"the file's values do not fit this kernel: {error!s:.300}"
        raise BadFile(f"{said}. Create kernel= as for the fit.") from None

    return prior


def _bind_kernel(
    kernel: Any, tensors: dict[str, Tensor], sets: int, columns: Columns
) -> None:
    """Make the torch parameters of a kernel with the shapes of the file.

    Kernels of some columns have groups of their own.
    """
    group = None
    partial = []
    for name, part in kernel.named_modules(prefix="prior.kernel"):
        own = None
        if f"{name}.group" in tensors:
            own = tensors[f"{name}.group"].numpy().copy()
        if f"{name}.index" not in tensors:
            group = own if group is None else group
            continue

        index = tensors[f"{name}.index"]
        part.register_buffer("index", index.clone())
        whole = None
        if own is not None:
            whole = np.zeros(len(columns.center), np.int64)
            whole[index.numpy()] = own
        partial.append((part, columns._replace(group=whole)))

    kernel.bind(sets, columns._replace(group=group))
    for part, of_part in partial:
        part.bind(sets, of_part)


def _restore_likelihood(
    tensors: dict[str, Tensor], meta: Meta, n_classes: int | None, n_latent: int
) -> Likelihood:
    """Make the likelihood of a file; `n_classes` is None for a regressor."""
    from cavity.engine.likelihoods import Likelihood

    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    likelihood: Any = Unpacking(arrays).unpack(meta["likelihood"])
    if not isinstance(likelihood, Likelihood):
        raise BadFile("the likelihood is not one.")

    if n_classes is not None:
        fits = not likelihood.two_classes or n_classes == 2
        if fits:
            likelihood = likelihood.bind(n_classes)
        if not fits or likelihood.n_latent != n_latent:
            raise BadFile(
                f"the likelihood {type(likelihood).__name__} does not fit "
                f"{n_classes} classes."
            )

    likelihood.load_state(select_arrays(tensors, "factor."), tensors["mean"].dtype)
    return likelihood


def count_kernels(kernel: Any) -> int:
    """Return the number of sets of kernel parameters: one per class, or one for all."""
    from torch import nn

    from cavity.engine.kernels import Kernel

    count = 1
    if isinstance(kernel, nn.Module):
        for part in kernel.modules():
            if isinstance(part, Kernel):
                for parameter in part.parameters(recurse=False):
                    if parameter.ndim:
                        count = max(count, len(parameter))

    return count
