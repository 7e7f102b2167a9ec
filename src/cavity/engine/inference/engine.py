"""One engine for every method.

A step visits rows and moves sums, sites and hyper-parameters. If it fails, it returns
the old state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from cavity.common.linalg import Factor, pack_symmetric, unpack_symmetric
from cavity.common.ranks import Local
from cavity.engine.batches.in_memory import Batch
from cavity.engine.batches.stream import Data, Whole
from cavity.engine.inference.batch_sites import join
from cavity.engine.inference.posterior import Posterior, Sums
from cavity.engine.inference.sites import SiteUpdate
from cavity.engine.inference.state import (
    Factored,
    Info,
    Optimiser,
    Slope,
    State,
    Totals,
    choose,
    is_readable,
    start_on_second_stream,
)
from cavity.engine.inference.visits import CachedProjection, Visit, Visits
from cavity.engine.kernels.hyper_prior import HyperPrior
from cavity.engine.kernels.prior import Prior
from cavity.engine.likelihoods import Likelihood

OF_FACTOR = "likelihood."  # begins the names of the factor's parameters
# longest move of a hyper-parameter in one step, in its own units (logs, or spreads of a
# column)
LONGEST = 12.0


def name_parameters(prior: Prior, factor: Likelihood) -> dict[str, nn.Parameter]:
    """Return the learnt parameters by name, each once.

    Parameters of the prior are named by their path, parameters of the factor
    "likelihood.0", "likelihood.1", ...
    """
    own = {f"{OF_FACTOR}{i}": p for i, p in enumerate(factor.parameters)}
    return {name: p for name, p in prior.named_parameters() if p.requires_grad} | own


def find_places(parameters: dict[str, nn.Parameter]) -> dict[str, slice]:
    """Return where each parameter stands in θ."""
    ends = accumulate(p.numel() for p in parameters.values())
    pairs = zip(parameters.items(), ends, strict=True)
    return {name: slice(end - p.numel(), end) for (name, p), end in pairs}


class Collected(NamedTuple):
    """What a step made of its rows."""

    q: Posterior  # of the old sums, which the rows saw
    totals: Totals
    gradient: Tensor  # [P], without the own parameters of q
    sums: Sums  # the new ones
    factor: Factor  # of the new q


class Visited(NamedTuple):
    """What a step found on the pieces of its rows."""

    totals: Totals
    updates: list[SiteUpdate]
    slope: Tensor  # [P], of all pieces but the last
    last: Visit


@dataclass(frozen=True, kw_only=True)
class Engine(Visits):
    """The steps of a run, without its data and without its state.

    A q that is not a product over classes is a subclass that overrides `shape`,
    `visit_rows` and `exact_gradient` (see `Coupled`).
    """

    hyper_prior: HyperPrior
    total: Tensor  # [], Σ weights over all rows
    chunk: int = 1 << 62  # rows projected at a time
    exact: bool = False  # differentiate through q and the cavities at fixed (τ, ν)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of independent blocks of q and of values in each, [C M]."""
        return self.prior.n_latent, self.prior.size

    @property
    def places(self) -> dict[str, slice]:
        """Where each parameter stands in θ."""
        return find_places(self.parameters)

    def freeze(self, state: State, rows: Data, learn: bool = False) -> Engine:
        """Return the engine for sweeps at fixed hyper-parameters.

        Rows that form a single piece are projected only once.

        `learn`: `thaw` may follow, so autograd records the projection.
        """
        if rows.n_rows <= self.chunk:
            pieces = list(rows.whole().split(self.chunk))
        else:
            pieces = []

        if len(pieces) != 1:
            return self

        self.load(state.theta)
        with torch.set_grad_enabled(learn):
            projection = self.prior.project(pieces[0].X, state.jitter)
        with torch.no_grad():
            pull = self.hyper_prior.gradient(state.theta)
            cached = CachedProjection(
                state.jitter, projection, projection.r.double(), pull
            )

        return replace(self, parameters={}, cached=cached)

    def thaw(self, frozen: Engine) -> Engine:
        """Return this engine with the projection of the frozen one.

        It takes one step of learning at the same hyper-parameters. An exact gradient
        runs through a projection of its own.
        """
        if self.exact:
            return self

        return replace(self, cached=frozen.cached)

    @torch.no_grad()
    def collect(self, state: State, batch: Batch | Whole, reduce: Local) -> State:
        """Return the state with sums computed anew from its sites.

        After a move of θ, the old sums belong to another projection. Tied sites have no
        other sums.
        """
        if self.sites.tied:
            return state

        self.load(state.theta)
        parts = []
        for piece in batch.split(self.chunk):
            projection = self.project(state, piece)
            classes = self.factor.sites(piece.y)
            site = self.sites.stored(state, piece, classes).site
            share = self.sites.share(piece.weight, self.removal)
            r = self._residual(state, projection)
            parts.append(self._sum_sites(site, classes, projection.a, share, r))

        if len(parts) == 1:
            sums = parts[0]
        else:
            sums = Sums(
                torch.stack([part.P for part in parts]).sum(0),
                torch.stack([part.h for part in parts]).sum(0),
            )

        return state._replace(sums=reduce.sum(sums))

    def theta(self) -> Tensor:
        """Return the workspace's hyper-parameters as a vector, with zeros for the own
        parameters of q.
        """
        of_q = torch.zeros(
            self.sites.size, dtype=torch.float64, device=self.total.device
        )
        if not self.parameters:
            return of_q

        vector = parameters_to_vector(self.parameters.values()).detach()
        return torch.cat([vector, of_q.to(vector)])

    def step(
        self,
        state: State,
        batch: Whole,
        reduce: Local,
        optimiser: Optimiser | None,
        full: bool,
        *,
        factored: Factored | None = None,
        going: Tensor | None = None,
    ) -> tuple[State, Info]:
        """Update the batch's sites once; with an optimiser, step the hyper-parameters.

        The new q is factorised. If that fails the old state is returned, and
        `info.failed` says so.

        `full`: the batch is the whole table, so the sums are rebuilt instead of
        averaged. `factored`: the factor of q that the step before returned, so that q
        is not factorised twice. `going` [] bool: if False nothing moves, as if the step
        failed.
        """
        self.load(state.theta)
        factor = self._find_factor(state, factored)
        q = self.sites.gaussian(state.sums, factor)
        learn = optimiser is not None and bool(self.parameters)
        visited = self._visit(state, q, batch, learn and not self.exact, full)
        totals = _sum(visited.totals, reduce)
        decay = self.sites.decay(state.damping, totals.weight, totals.counts, full)
        sums = self.sites.collect(state.sums, Sums(totals.P, totals.h), decay)

        # independent: the factor of the new q, and the gradient of the last piece
        get_new = start_on_second_stream(
            lambda: self.sites.factorise(sums), self.total.device
        )
        slope = visited.slope
        if learn:
            if self.exact:
                slope = self.exact_gradient(state, batch)
            else:
                slope = slope + visited.last.pull()
            slope = reduce.sum(Slope(slope)).gradient

        made = Collected(q, totals, slope, sums, get_new())
        moved, info = self._move(state, made, optimiser, full, going)
        if is_readable(info.failed) and bool(info.failed):
            return state, info._replace(factored=Factored(state.sums.P, factor))

        if full or self.sites.tied:
            clock = state.clock
        else:
            clock = state.clock + decay.clamp_min(1e-300).log()

        update = join(visited.updates)
        sites = self.sites.write(state.sites, batch, update, decay, clock, full)
        moved = moved._replace(sites=sites, clock=clock)
        return self._choose(state, moved, info, factor, batch, update)

    def _find_factor(self, state: State, factored: Factored | None) -> Factor:
        """Return the factor of q, which the step before may have computed."""
        if factored is not None and factored.of is state.sums.P:
            return factored.factor

        return self.sites.factorise(state.sums)

    def _visit(
        self, state: State, q: Posterior, batch: Whole, pulls: bool, full: bool
    ) -> Visited:
        """Visit the pieces of the rows; with `pulls`, add up their gradients.

        The gradient of the last piece is left to the caller.
        """
        pieces = iter(batch.split(self.chunk))  # one in memory at a time
        found = self.visit_rows(state, q, next(pieces), pulls, full)
        totals = found.totals
        updates = [found.update]
        slope = torch.zeros_like(state.theta[: len(state.theta) - self.sites.size])
        for piece in pieces:
            if pulls:
                slope = slope + found.pull()

            found = self.visit_rows(state, q, piece, pulls, full)
            totals = Totals(*map(torch.add, totals, found.totals))
            if self.sites.tied:
                updates.clear()
            updates.append(found.update)

        return Visited(totals, updates, slope, found)

    def _move(
        self,
        state: State,
        made: Collected,
        optimiser: Optimiser | None,
        full: bool,
        going: Tensor | None,
    ) -> tuple[State, Info]:
        """Return the state with new sums and hyper-parameters, and the step's info."""
        q, totals, gradient, sums, factor = made
        scale = self.total / totals.weight
        evidence = self.sites.evidence(state.sums, q) + scale * totals.value
        theta = state.theta
        memory = state.optimiser
        cached = self._find_cached(state)
        if cached is None:
            pull = self.hyper_prior.gradient(theta)
        else:
            pull = cached.pull

        slope = promise = None
        if optimiser is not None:
            of_q = self.sites.slope(theta, Sums(totals.P, totals.h), scale)
            slope = torch.cat([scale * gradient, of_q]) + pull
            theta, memory = optimiser.step(memory, theta, slope, state.rate)
            theta = self.hyper_prior.clip(theta)
            if full:
                promise = (slope * (theta - state.theta)).sum()

        moved = state._replace(theta=theta, sums=sums, optimiser=memory)
        if self.sites.size:
            moved = self.sites.place(moved)
            sums = moved.sums
            factor = self.sites.factorise(sums)

        size = sums.h.sum() + evidence
        broken = q.failed | totals.failed
        failed = broken | factor.failed
        if len(theta) and optimiser is not None:
            # k(Z, Z) is factorised in the next step, and must have finite values there
            leap = torch.linalg.vector_norm(theta - state.theta, math.inf)
            failed = failed | (leap > LONGEST)
            size = size + leap

        failed = failed | (size - size != 0)  # ∞ − ∞ is NaN
        if going is not None:
            failed = failed | ~going
        objective = evidence + self.hyper_prior.log_density(state.theta, pull)
        known = Factored(sums.P, factor)
        info = Info(
            objective, evidence, totals.skipped, failed, broken, known, slope, promise
        )
        return moved, info

    def _choose(
        self,
        old: State,
        new: State,
        info: Info,
        factor: Factor,
        batch: Any,
        update: SiteUpdate,
    ) -> tuple[State, Info]:
        """Return the new state, or the old one if the step failed on a GPU.

        A GPU reads no flag, so it chooses between tensors.
        """
        if is_readable(info.failed):
            return new, info

        # the step wrote the rows of own sites in place
        if update.stored is not None and update.stored.rows is not None:
            for table, kept in zip(new.sites, update.stored.rows, strict=True):
                table[batch.index] = choose(info.failed, kept, table[batch.index])

        moved, chosen = choose(info.failed, (old, factor), (new, info.factored.factor))
        return moved, info._replace(factored=Factored(moved.sums.P, chosen))


def _sum(totals: Totals, reduce: Local) -> Totals:
    """Sum over the ranks; half of each symmetric matrix travels."""
    if reduce.world == 1:
        return reduce.sum(totals)

    halves = reduce.sum(totals._replace(P=pack_symmetric(totals.P)))
    return halves._replace(P=unpack_symmetric(halves.P, totals.P.shape[-1]))
