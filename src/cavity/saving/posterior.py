"""The posterior, its prior and its likelihood as tensors, and back. Every shape is checked before anything is made of it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from cavity.common.column_statistics import Columns
from cavity.errors import BadFile
from cavity.fitting.build import make_default_kernel
from cavity.kernels import Kernel
from cavity.kernels.prior import Prior
from cavity.kernels.spectrum import Spectrum, spectral_degrees
from cavity.likelihoods import Likelihood
from cavity.options import Method
from cavity.prediction.model import FittedModel, with_canonical_layout
from cavity.prediction.regression import TrainingRows
from cavity.saving.checking import Meta, check_factor
from cavity.saving.ranges import Sizes
from cavity.saving.serialize import Tensors, Unpacking

SLACK = {torch.float64: 1e-6, torch.float32: 1e-2}  # of variances, relative to the largest


def describe_prior(prior: Prior) -> dict[str, Any]:
    moving = prior.kernel.parameters() if isinstance(prior.kernel, nn.Module) else ()
    kernel = any(p.requires_grad for p in moving)
    learnt = {"kernel": kernel, "noise": prior.learn_noise, "inducing": prior.learn_inducing}
    return {
        "learn": [name for name, is_learnt in learnt.items() if is_learnt],
        "kernels": _kernel_sets(prior.kernel),
        "spectrum": isinstance(prior, Spectrum),
    }


def _kernel_sets(kernel: Any) -> int:
    """Return how many sets of parameters the kernel has: one per class, or one that they share."""
    parts = kernel.modules() if isinstance(kernel, nn.Module) else ()
    logs = [p for part in parts if isinstance(part, Kernel) for p in part.parameters(recurse=False)]
    return max((len(p) for p in logs if p.ndim), default=1)


def _entries(prior: Prior) -> Iterator[tuple[str, Tensor]]:
    """Yield its parameters and buffers by name, each once."""
    yield from prior.named_parameters(prefix="prior")
    yield from prior.named_buffers(prefix="prior")


def model_tensors(model: FittedModel) -> Tensors:
    found = {name: t.detach().clone() for name, t in _entries(model.prior)}
    found |= {"prior_lower": model.prior_lower, "mean": model.mean, "lower": model.lower}
    found |= {f"factor.{name}": value for name, value in model.likelihood.state().items()}
    return found


def restore_model(
    tensors: Tensors, about: Meta, kernel: Any, sizes: Sizes, likelihood: Likelihood
) -> FittedModel:
    linear, fades = (f"prior.kernel.k2.{name}" in tensors for name in ("log_lengthscale", "square_reach"))
    made = make_default_kernel(linear, fades) if kernel is None else copy.deepcopy(kernel)
    prior = _prior(tensors, about, made, sizes)
    if not isinstance(prior, Spectrum):
        _check_factor(prior, tensors["prior_lower"])
    prior_lower, mean, lower = (tensors[name] for name in ("prior_lower", "mean", "lower"))
    return with_canonical_layout(FittedModel(prior, prior_lower, mean, lower, likelihood))


@torch.no_grad()
def _check_factor(prior: Prior, lower: Tensor) -> None:
    """Check the factor against the kernel; fewer of one than of the other are shared."""
    K = prior.kernel.full(prior.Z)
    if K.shape[1:] != lower.shape[1:] or len(K) > len(lower):
        raise BadFile(f"prior_lower has shape {tuple(lower.shape)}, and the kernel {tuple(K.shape)}.")
    check_factor(K.numpy(), lower.numpy())


@torch.no_grad()
def check_training_rows(model: FittedModel, rows: TrainingRows) -> None:
    """Check that Λ = I + A B Aᵀ, and that no row's |a|² exceeds its variance."""
    v = torch.randn(len(rows.a), dtype=rows.a.dtype)
    expected = v + rows.a @ (rows.weight * (rows.a.mT @ v))
    off = (rows.lower @ (rows.lower.mT @ v) - expected).abs().max()
    variance = model.prior.kernel.diag(rows.X.to(model.mean.dtype))[0].double()
    holds = len(rows.y) and off <= 1e-6 * (1 + rows.lower.square().sum()) * v.abs().max()
    if not holds or not (rows.a.square().sum(0) <= variance + SLACK[model.mean.dtype] * variance.max()).all():
        raise BadFile("the training rows do not fit the model.")


def _prior(tensors: Tensors, about: Meta, kernel: Any, sizes: Sizes) -> Prior:
    learn, dtype = frozenset(about["learn"]), tensors["mean"].dtype
    if isinstance(kernel, Kernel):
        groups = (f"{name}.group" for name, _ in kernel.named_modules(prefix="prior.kernel"))
        group = next((tensors[name].numpy().copy() for name in groups if name in tensors), None)
        where, wide = (tensors[f"prior.{name}"].double().numpy() for name in ("center", "spread"))
        kernel.bind(sizes["K"], Columns(where, wide, 1.0, group))
    kernel.requires_grad_("kernel" in learn)
    noise = tensors["prior.log_noise" if "noise" in learn else "prior.fixed_noise"]
    Z, center, spread = (torch.ones_like(tensors[f"prior.{n}"]) for n in ("inducing", "center", "spread"))
    if about.get("spectrum") and spectral_degrees(type(kernel)) is None:
        raise BadFile(f"a sparse spectrum of {type(kernel).__name__} is not known.")
    kind = Spectrum if about.get("spectrum") else Prior
    prior = kind(kernel, Z, torch.ones_like(noise), center, spread, sizes["C"], learn).to(dtype)
    _fill(prior, tensors)
    return prior


def _fill(prior: Prior, tensors: Tensors) -> None:
    """Fill every parameter and buffer from the file, which must have no others: a kernel of the user's own has its own names."""
    entries = dict(_entries(prior))
    found = {name for name in tensors if name.startswith("prior.")}
    if found != set(entries):
        odd = sorted(found ^ set(entries))[0]
        raise BadFile(
            f"{odd!r:.100} is {'not known to' if odd in found else 'missing for'} this kernel: create kernel= as for the fit."
        )
    for name, entry in entries.items():
        if tensors[name].shape != entry.shape or tensors[name].dtype != entry.dtype:
            shape = tuple(tensors[name].shape)
            raise BadFile(
                f"{name:.100} has shape {shape} and type {tensors[name].dtype}; expected {tuple(entry.shape)}, {entry.dtype}."
            )
        entry.data.copy_(tensors[name])


def restore_likelihood(
    tensors: Tensors, meta: Meta, method: Method, n_classes: int | None, dtype: torch.dtype
) -> Likelihood:
    """Make the likelihood of a file; `n_classes` is None for a regressor."""
    made: Any = Unpacking(tensors).unpack(meta["likelihood"])
    if not isinstance(made, Likelihood):
        raise BadFile("the likelihood is not one.")
    if n_classes is not None:
        _check_classes(made, n_classes)
    state = {name.removeprefix("factor."): t for name, t in tensors.items() if name.startswith("factor.")}
    if method.needs_noise and not state:
        raise BadFile(f"the file lacks the noise that {method.argument} needs.")
    made.load_state(state, dtype)
    return made


def _check_classes(likelihood: Likelihood, n_classes: int) -> None:
    if likelihood.n_classes is None:
        likelihood.n_classes = n_classes
    if likelihood.n_classes != n_classes or likelihood.two_classes != (n_classes == 2):
        raise BadFile(f"the likelihood {type(likelihood).__name__} does not fit {n_classes} classes.")
