"""A likelihood with labels and marginals to check it on, and the shapes of its results."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cavity.engine.likelihoods import Committee, Latents, Likelihood, Moments
from cavity.errors import BadOption, BadResult
from cavity.testing.results import require_tensor

ROWS = 12
CLASSES = 3  # for likelihoods of many classes


class Case(NamedTuple):
    """A bound likelihood, with labels and marginals to give it."""

    likelihood: Likelihood
    y: Tensor  # [B], or [B 2] of a committee
    f: Latents  # [B S]
    n_classes: int  # 1 for regression

    @property
    def name(self) -> str:
        return type(self.likelihood).__name__

    def offers(self, method: str) -> bool:
        kind = type(self.likelihood)
        return getattr(kind, method) is not getattr(Likelihood, method)


def make_case(likelihood: Likelihood, n_classes: int | None) -> Case:
    """Bind a copy, and draw labels and marginals."""
    if not isinstance(likelihood, Likelihood):
        raise BadOption(
            f"likelihood={likelihood!r:.80} is not an instance of "
            "cavity.likelihoods.Likelihood."
        )

    rng = np.random.default_rng(0)
    if likelihood.n_classes == 1:  # targets
        count = 1
        bound = copy.deepcopy(likelihood)
        y = torch.tensor(rng.normal(size=ROWS))
        if isinstance(bound, Committee):
            y = torch.stack([torch.arange(ROWS) % 2, y], 1)
    else:
        count = n_classes or likelihood.n_classes or CLASSES
        if likelihood.two_classes:
            count = 2
        bound = likelihood.bind(count)
        y = torch.arange(ROWS) % count

    bound = bound.to(torch.device("cpu"), torch.float64)
    sites = read_sites(bound, y)
    mean = rng.normal(0, 1.5, sites.shape)
    residual = rng.uniform(0.05, 0.6, sites.shape)
    var = residual + rng.uniform(0.2, 2.0, sites.shape)
    return Case(bound, y, Latents(*map(torch.tensor, (mean, var, residual))), count)


def read_sites(likelihood: Likelihood, y: Tensor) -> Tensor:
    """Return the latent function of each site, checked."""
    what = f"{type(likelihood).__name__}.sites"
    found = likelihood.sites(y)
    S = found.shape[-1] if isinstance(found, Tensor) and found.ndim == 2 else 1
    found = require_tensor(what, found, (len(y), S))
    count = likelihood.n_latent
    if isinstance(likelihood, Committee):
        count = 2  # members
    in_range = (found >= 0) & (found < count)
    if found.dtype != torch.long or not bool(in_range.all()):
        raise BadResult(
            f"{what} returned {found.dtype} from {found.min()} to {found.max()}, "
            f"expected torch.int64 from 0 to {count - 1}."
        )

    return found


def screen_likelihood(likelihood: Likelihood, y: Tensor, variational: bool) -> None:
    """Raise BadResult if sites or factors have a wrong shape, NaN or infinity.

    This is quick: a fit does it, too.
    """
    sites = read_sites(likelihood, y)
    like = torch.ones(1, dtype=torch.float64, device=y.device)
    mean = torch.linspace(-1, 1, sites.numel()).to(like).view(sites.shape)
    f = Latents(mean, torch.full_like(mean, 1.5), torch.full_like(mean, 0.5))
    with torch.no_grad():
        if variational:
            found = likelihood.average(f, y)
        else:
            found = likelihood.moments(f, y, None)
    method = "average" if variational else "moments"
    require_moments(f"{type(likelihood).__name__}.{method}", found, f, likelihood)


def require_moments(
    what: str, found: Any, f: Latents, likelihood: Likelihood
) -> Moments:
    if not isinstance(found, Moments):
        raise BadResult(f"{what} returned {type(found).__name__}, expected Moments.")

    rows, sites = f.mean.shape
    require_tensor(f"{what}: value", found.value, (rows,))
    for name in ("dm", "dv", "dr"):
        require_tensor(f"{what}: {name}", getattr(found, name), (rows, sites))
    learnt = sum(p.numel() for p in likelihood.parameters)
    if learnt:
        require_tensor(f"{what}: own", found.own, (rows, learnt))
    elif found.own is not None:
        raise BadResult(f"{what}: own must be None: the class has no parameters.")

    return found
