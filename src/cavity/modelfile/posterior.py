"""The posterior and its prior as tensors, and back: every shape is compared with the others before anything is made of it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cavity.columns import Columns
from cavity.errors import BadFile
from cavity.estimators import fitted
from cavity.estimators.build import usual_kernel
from cavity.estimators.saved.checks import expect, expect_factors
from cavity.factors import Likelihood
from cavity.kernels import Deep, Kernel
from cavity.prior import Prior
from cavity.spectrum import DEGREES, Spectrum


class Q(NamedTuple):
    """The tensors of a posterior that fit together."""

    mean: Tensor
    lower: Tensor
    prior_lower: Tensor


def describe(prior: Prior) -> dict[str, Any]:
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


def tensors(model: fitted.Fitted) -> dict[str, Tensor]:
    found = {name: t.detach().clone() for name, t in _entries(model.prior)}
    found |= {"prior_lower": model.prior_lower, "mean": model.mean, "lower": model.lower}
    return found


def posterior(tensors: dict[str, Tensor], about: dict[str, Any], C: int, coupled: bool = False) -> Q:
    """q of C latent functions, which may be coupled into one block."""
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
        raise BadFile("there are no inducing points, or no columns.")
    expect_factors(lower=lower, prior_lower=prior_lower)
    return Q(mean, lower, prior_lower)


def restore(
    tensors: dict[str, Tensor], about: dict[str, Any], kernel: Any, C: int, q: Q, factor: Likelihood
) -> fitted.Fitted:
    """The posterior with its prior."""
    made = (
        usual_kernel("prior.kernel.k2.log_lengthscale" in tensors)
        if kernel is None
        else copy.deepcopy(kernel)
    )
    prior = _prior(tensors, about, made, C, q.mean.dtype)
    return fitted.ready(prior, q.prior_lower, q.mean, q.lower, factor)


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
    expect("the noise", noise, [(1,), (C,)], dtype)
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
            expect(name, tensors[f"{name}.log_lengthscale"], [shape], None)


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
        expect(name, tensors[name], [tuple(entry.shape)], entry.dtype)
        entry.data.copy_(tensors[name])
