"""The posterior and its prior as tensors, and back. Every shape is checked before anything is made of it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cavity.columns import Columns
from cavity.errors import BadFile
from cavity.factors import Likelihood
from cavity.fitting.build import make_default_kernel
from cavity.kernels import Deep, Kernel
from cavity.modelfile.checks import expect, expect_factors
from cavity.prediction.model import FittedModel, with_canonical_layout
from cavity.prior import Prior
from cavity.spectrum import Spectrum, spectral_degrees


class Q(NamedTuple):
    """The tensors of a posterior that fit together."""

    mean: Tensor
    lower: Tensor
    prior_lower: Tensor


def describe_prior(prior: Prior) -> dict[str, Any]:
    """Return the part of the prior that is JSON, next to its tensors."""
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
    """Return how many sets of parameters the kernel has: one per class, or one that they share."""
    parts = kernel.modules() if isinstance(kernel, nn.Module) else ()
    logs = [p for part in parts if isinstance(part, Kernel) for p in part.parameters(recurse=False)]
    return max((len(p) for p in logs if p.ndim), default=1)


def _entries(prior: Prior) -> Iterator[tuple[str, Tensor]]:
    """Yield its parameters and buffers by name, each once."""
    yield from prior.named_parameters(prefix="prior")
    yield from prior.named_buffers(prefix="prior")


def model_tensors(model: FittedModel) -> dict[str, Tensor]:
    """Return the tensors of a model by name."""
    found = {name: t.detach().clone() for name, t in _entries(model.prior)}
    found |= {"prior_lower": model.prior_lower, "mean": model.mean, "lower": model.lower}
    return found


def read_posterior(tensors: dict[str, Tensor], about: dict[str, Any], C: int, coupled: bool = False) -> Q:
    """Return q of C latent functions, which may be coupled into one block."""
    q = check_posterior(tensors, about, C, coupled)
    expect_factors(lower=q.lower, prior_lower=q.prior_lower)
    return q


def check_posterior(tensors: dict[str, Tensor], about: dict[str, Any], C: int, coupled: bool) -> Q:
    """Check that the shapes of q and of its inducing points fit together; needs no values."""
    mean, lower, prior_lower = (tensors[name] for name in Q._fields)
    D = tensors["prior.center"].shape[0]
    Z = tensors["prior.inducing"]
    dtype, H = mean.dtype, Z.shape[-2]
    M = 2 * H if about.get("spectrum") else H  # a frequency has a cosine and a sine; older files have none
    blocks = 1 if coupled and len(mean) < C else C
    expect("mean", mean, [(blocks, C // blocks * M)], dtype)
    expect("lower", lower, [(blocks, C // blocks * M, C // blocks * M)], dtype)
    expect("prior_lower", prior_lower, [(1, M, M), (C, M, M)], dtype)
    expect("prior.inducing", Z, [(1, H, D), (C, H, D)], dtype)
    if not M * D:
        raise BadFile("the file lacks inducing points or columns.")
    return Q(mean, lower, prior_lower)


def restore_model(
    tensors: dict[str, Tensor], about: dict[str, Any], kernel: Any, C: int, q: Q, likelihood: Likelihood
) -> FittedModel:
    """Make the model from its tensors."""
    made = (
        make_default_kernel("prior.kernel.k2.log_lengthscale" in tensors)
        if kernel is None
        else copy.deepcopy(kernel)
    )
    prior = _prior(tensors, about, made, C, q.mean.dtype)
    return with_canonical_layout(prior, q.prior_lower, q.mean, q.lower, likelihood)


def _prior(
    tensors: dict[str, Tensor], about: dict[str, Any], kernel: Any, C: int, dtype: torch.dtype
) -> Prior:
    learn, K = frozenset(map(str, about["learn"])), about["kernels"]
    D = len(tensors["prior.center"])
    if K not in (1, C):
        raise BadFile(f"the kernel has {K!r:.20} sets of parameters for {C} latent functions.")
    if isinstance(kernel, Kernel):
        group = _read_group(kernel, tensors, D)
        _check_lengthscales(kernel, tensors, (K, D if group is None else int(group.max()) + 1))
        where, wide = (tensors[f"prior.{name}"].double().numpy() for name in ("center", "spread"))
        kernel.bind(K, Columns(where, wide, 1.0, group))
    kernel.requires_grad_("kernel" in learn)
    noise = tensors["prior.log_noise" if "noise" in learn else "prior.fixed_noise"]
    expect("the noise", noise, [(1,), (C,)], dtype)
    Z, center, spread = (
        torch.ones_like(tensors[f"prior.{name}"]) for name in ("inducing", "center", "spread")
    )
    if about.get("spectrum") and spectral_degrees(type(kernel)) is None:
        raise BadFile(f"a sparse spectrum of {type(kernel).__name__} is not known.")
    kind = Spectrum if about.get("spectrum") else Prior
    prior = kind(kernel, Z, torch.ones_like(noise), center, spread, C, learn).to(dtype)
    _fill(prior, tensors)
    return prior


def _read_group(kernel: nn.Module, tensors: dict[str, Tensor], D: int) -> Any:
    """Return which columns share a lengthscale, [D]; None if none do."""
    named = [f"{name}.group" for name, _ in kernel.named_modules(prefix="prior.kernel")]
    found = [tensors[name] for name in named if name in tensors]
    if not found:
        return None
    for group in found:
        expect("a group of columns", group, [(D,)], torch.int64)
        numbers = set(group.tolist())
        if not torch.equal(group, found[0]) or numbers != set(range(len(numbers))):
            raise BadFile("the groups of columns that share lengthscales do not fit together.")
    return found[0].numpy().copy()


def _check_lengthscales(kernel: nn.Module, tensors: dict[str, Tensor], shape: tuple[int, int]) -> None:
    """Check sizes in the file before anything of classes times columns is made."""
    parts = dict(kernel.named_modules(prefix="prior.kernel"))
    deep = tuple(
        f"{name}." for name, part in parts.items() if isinstance(part, Deep)
    )  # below one, columns are features
    for name, part in parts.items():
        if hasattr(part, "lengthscale") and not name.startswith(deep):
            expect(name, tensors[f"{name}.log_lengthscale"], [shape], None)


def _fill(prior: Prior, tensors: dict[str, Tensor]) -> None:
    """Fill every parameter and buffer from the file, which must have no others."""
    entries = dict(_entries(prior))
    found = {name for name in tensors if name.startswith("prior.")}
    if found != set(entries):
        odd = sorted(found ^ set(entries))[0]
        raise BadFile(
            f"{odd!r:.100} is {'not known to' if odd in found else 'missing for'} this kernel: create kernel= as for the fit."
        )
    for name, entry in entries.items():
        expect(name, tensors[name], [tuple(entry.shape)], entry.dtype)
        entry.data.copy_(tensors[name])
