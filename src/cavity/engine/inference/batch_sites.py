"""A batch as its sites see it: tables of classes [C B] and tables of sites [B S]."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from cavity.engine.inference.posterior import Normal
from cavity.engine.inference.sites import Share, Site, SiteUpdate, StoredSites
from cavity.engine.inference.state import map_tensors


class SiteTotals(NamedTuple):
    """Sums of a row's sites on each class."""

    tau: Tensor  # [C B]
    nu: Tensor  # [C B]
    # [B], how many rows these sites belong to; each has its own residual
    copies: Tensor | float = 1.0


class BatchView(NamedTuple):
    """A batch as its sites see it, before anything is removed."""

    classes: Tensor  # [B S]
    t: Normal  # [B S], marginals of q
    residual: Tensor  # [B S], variance of f that the marginals lack
    stored: StoredSites
    totals: SiteTotals | None  # of the stored sites, if the placement needs them
    share: Share


def gather(x: Tensor, classes: Tensor) -> Tensor:
    """Read K tables [K C B] at the sites' classes, [K B S]."""
    return x.mT.gather(2, classes.expand(x.shape[0], -1, -1))


def scatter(x: Tensor, classes: Tensor, like: Tensor) -> Tensor:
    """Sum K tables over the sites of each class, [K B S] → [K C B]."""
    zeros = x.new_zeros(*x.shape[:2], like.shape[0])
    return zeros.scatter_add_(2, classes.expand(x.shape[0], -1, -1), x).mT.contiguous()


def site_totals(site: Site, classes: Tensor, like: Tensor, share: Share) -> SiteTotals:
    """Sum the rows' sites on each class."""
    tau, nu = scatter(torch.stack(site), classes, like).unbind()
    copies = share.copies
    if isinstance(copies, Tensor):
        copies = copies[:, 0]

    return SiteTotals(tau, nu, copies)


def differentiate(value: Tensor, parameters: tuple[nn.Parameter, ...]) -> Tensor:
    """Return the gradient of a value as one vector.

    A parameter that the value does not depend on contributes zeros.
    """
    if not value.requires_grad:
        return torch.zeros_like(parameters_to_vector(parameters))

    grads = torch.autograd.grad(
        value, parameters, allow_unused=True, materialize_grads=True
    )
    gradient = torch.cat([g.flatten() for g in grads])
    return gradient.detach()  # the zeros of torch 2.6 require a gradient


def pull_back(
    pairs: list[tuple[Tensor, Tensor]], parameters: tuple[nn.Parameter, ...]
) -> Tensor:
    """Carry pairs (output, cotangent) back to the parameters, as one vector.

    A scalar product does it: `grad_outputs` of torch imports sympy in its first call,
    which takes half a second, more than a small fit.

    By a scalar product: `grad_outputs` of torch imports sympy in its first call, half a
    second, more than a small fit.
    """
    with torch.enable_grad():
        products = [(output * cotangent).sum() for output, cotangent in pairs]
        return differentiate(torch.stack(products).sum(), parameters)


def join(parts: list[SiteUpdate]) -> SiteUpdate:
    """Concatenate the pieces of a batch."""
    if len(parts) == 1:
        return parts[0]

    whole: SiteUpdate = map_tensors(lambda *t: torch.cat(t), *parts)
    return whole
