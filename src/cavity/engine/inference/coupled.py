"""Laplace's method for the softmax, which couples the classes. [docs/decisions/0016]

Its q is not a product over classes. The Hessian of log softmax at a row is the C×C
matrix W = diag π − ππᵀ. A site is exp(−½ fᵀW f + ν·f), and q is one Gaussian of all CM
whitened values. The store keeps π instead of τ, because W follows from π; π = 0 is an
empty site.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.linalg import solve

from cavity.common.linalg import solve_lower
from cavity.common.ranks import Local
from cavity.engine.batches.in_memory import Batch
from cavity.engine.batches.stream import Whole
from cavity.engine.inference.batch_sites import differentiate
from cavity.engine.inference.engine import Engine
from cavity.engine.inference.posterior import Posterior, Sums, posterior
from cavity.engine.inference.sites import Site, SiteUpdate
from cavity.engine.inference.state import State, Totals
from cavity.engine.inference.visits import Visit


class Eliminated(NamedTuple):
    """Sites of a batch with the residual of f eliminated.

    W and ν belong to one copy of a row; there are `rows` copies.
    """

    W: Tensor  # [B C C]
    nu: Tensor  # [B C]
    grown: Tensor  # [B C C],  I + R W
    rows: Tensor  # [B]

    def feed(self) -> tuple[Tensor, Tensor]:
        r"""Return what the sums take of all copies.

        W' = W (I + RW)⁻¹        ν' = (I + WR)⁻¹ ν
        """
        W = solve(self.grown, self.W, left=False)
        nu = solve(self.grown.mT, self.nu)
        return self.rows[:, None, None] * W, self.rows[:, None] * nu

    def mode(self, t: Tensor, r: Tensor) -> Tensor:
        r"""Return f̂ = (I + RW)⁻¹ (t + Rν), [B C]."""
        return solve(self.grown, t + r * self.nu)

    def width(self, t_cov: Tensor, r: Tensor) -> Tensor:
        r"""Return the covariance of f, [B C C].

        (I + RW)⁻¹ R + (I + RW)⁻¹ S_t (I + WR)⁻¹
        """
        half = solve(self.grown, t_cov)
        return solve(self.grown, torch.diag_embed(r)) + solve(self.grown, half.mT).mT

    def evidence(self, r: Tensor) -> Tensor:
        r"""Return Σ −½ log|I + RW| + ½ νᵀR(I + WR)⁻¹ν."""
        pulled = solve(self.grown.mT, self.nu)
        log_det: Tensor = torch.linalg.slogdet(self.grown).logabsdet
        each = (self.nu * r * pulled).sum(-1) - log_det
        return 0.5 * (self.rows * each).sum()


def hessian(pi: Tensor) -> Tensor:
    """Return W = diag π − ππᵀ, [B C] → [B C C]."""
    return torch.diag_embed(pi) - pi[:, :, None] * pi[:, None, :]


def eliminate_residual(site: Site, r: Tensor, weight: Tensor) -> Eliminated:
    """Eliminate the residual.

    A row of weight ω ≥ 1 counts as ω rows with their own f; below 1 it is p(y | f)^ω.
    """
    rows = weight.clamp_min(1.0)
    power = weight / rows
    W = power[:, None, None] * hessian(site.tau)
    eye = torch.eye(r.shape[1], dtype=r.dtype, device=r.device)
    return Eliminated(W, power[:, None] * site.nu, eye + r[:, :, None] * W, rows)


def sums(a: Tensor, fed: tuple[Tensor, Tensor]) -> Sums:
    """Return P = Σ_n A W' Aᵀ and h = Σ_n A ν' from a [C M B].

    All classes form one block: [1 CM CM] and [1 CM].
    """
    W, nu = fed
    C, M, _ = a.shape
    # [D M M] for each c: block (d, c)
    blocks = [torch.bmm(a, (a[c] * W[:, c, :].mT[:, None]).mT) for c in range(C)]
    P = torch.stack(blocks, 1)  # [D C M M]
    h = torch.bmm(a, nu.mT[..., None])[..., 0]
    return Sums(P.permute(0, 2, 1, 3).reshape(1, C * M, C * M), h.reshape(1, C * M))


def mean_of(q: Posterior, a: Tensor) -> Tensor:
    """Return E t, [B C]."""
    return torch.bmm(q.mean.reshape(len(a), 1, -1), a)[:, 0].mT


def cov_of(q_lower: Tensor, a: Tensor) -> Tensor:
    """Return the covariance of t_n over classes, A_nᵀ Σ A_n, [B C C]."""
    C, M, _ = a.shape
    eye = torch.eye(C * M, dtype=q_lower.dtype, device=q_lower.device)
    inverse = solve_lower(q_lower[0], eye).to(a.dtype)  # [CM CM]
    # [C CM B]
    half = torch.stack([inverse[:, c * M : (c + 1) * M] @ a[c] for c in range(C)])
    return torch.einsum("ckb,dkb->bcd", half, half)


class Coupled(Engine):
    """The engine for coupled classes.

    The training loop, the state and the optimisers are shared by all methods.
    """

    sites_are_totals = False

    @property
    def shape(self) -> tuple[int, int]:
        C, M = super().shape
        return 1, C * M

    def collect(self, state: State, batch: Batch | Whole, reduce: Local) -> State:
        """Return the state unchanged.

        A Newton step finds the mode from the sums of other hyper-parameters, too.
        """
        return state

    def visit_rows(
        self, state: State, q: Posterior, batch: Batch, learn: bool, full: bool
    ) -> Visit:
        with torch.no_grad():
            a, r, failed = self._project(state, batch)
            stored = self.sites.stored(state, batch, r)
            old = eliminate_residual(stored.site, r, batch.weight)
            f = old.mode(mean_of(q, a), r)
            pi = f.softmax(-1)
            own = torch.zeros_like(pi).scatter(1, batch.y[:, None], 1.0)
            site = Site(pi, own - pi + pi * (f - (pi * f).sum(-1, keepdim=True)))
            usable = torch.ones_like(pi, dtype=torch.bool)
            added = self.sites.added(stored.site, site, usable, state.damping, full)
            P, h = sums(a, eliminate_residual(added, r, batch.weight).feed())
            log_sites = batch.weight * _log_site(f, batch.y, stored.site)
            value = log_sites.sum() + old.evidence(r)
            counts = r.new_zeros(len(a))
            skipped = r.new_zeros((), dtype=torch.int64)

        totals = Totals(P, h, value, batch.weight.sum(), counts, skipped, failed)
        pull = partial(self.exact_gradient, state, batch)
        return Visit(totals, site, SiteUpdate(added, None if full else stored), pull)

    def exact_gradient(self, state: State, batch: Any) -> Tensor:
        r"""Return ∂/∂ξ [ log evidence at fixed (π, ν) + Σ_n c_n·f_n ], [P].

            c = −½ ω π∘(u − π·u),    u = diag S − 2Sπ

        f_n(ξ) is the mode given the sites and S its covariance; c is ∂/∂f̂ of −½ log|I
        + KW(f̂)|.
        """
        with torch.enable_grad():
            a, r, _ = self._project(state, batch)
            site = Site(*(x[batch.index].double() for x in state.sites[:2]))
            fixed = eliminate_residual(site, r, batch.weight)
            q = posterior(sums(a, fixed.feed()))
            f = fixed.mode(mean_of(q, a), r)
            log_sites = batch.weight * _log_site(f, batch.y, site)
            value = q.log_normaliser.sum() + log_sites.sum()
            with torch.no_grad():
                S = fixed.width(cov_of(q.lower, a), r)
                pi = f.softmax(-1)
                u = S.diagonal(dim1=-2, dim2=-1) - 2 * (S @ pi[..., None])[..., 0]
                centred = u - (pi * u).sum(-1, keepdim=True)
                c = -0.5 * batch.weight[:, None] * pi * centred

            value = value + fixed.evidence(r) + (c * f).sum()

        return differentiate(value, tuple(self.parameters.values()))

    def _project(self, state: State, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return a [C M B] and r [B C] in float64, and whether the projection failed."""
        projection = self.project(state, batch)
        return projection.a.double(), projection.r.double().mT, projection.failed


def _log_site(f: Tensor, y: Tensor, site: Site) -> Tensor:
    r"""Return log p(y | f̂) + ½ f̂ᵀW f̂ − ν·f̂ of each row, [B]."""
    own = f.log_softmax(-1).gather(1, y[:, None])[:, 0]
    square = (site.tau * f * f).sum(-1) - (site.tau * f).sum(-1).square()
    return own + 0.5 * square - (site.nu * f).sum(-1)
