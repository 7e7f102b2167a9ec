"""What a fit learnt, and what another model of the same rows makes of it before it is trained."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from cavity.inference import Engine, State
from cavity.inference.view import scatter
from cavity.posterior import Sums
from cavity.training.fixed_point import find_fixed_point
from cavity.training.loop import Run

NEAR = 1e-3  # change of log Z_q per row, at which its sites have converged
SMALL_MOVE = 0.3  # of the sites, relative to their size
MOST_SWEEPS = 30


class Learnt(NamedTuple):
    """Hyper-parameters and sites of a fit. Another model of the same rows has other sites, but the same sums over a class."""

    shift: Tensor  # [P], hyper-parameters minus the means of their priors, which other columns move
    tau: Tensor  # [C N], Σ of a row's sites on each class
    nu: Tensor  # [C N]

    def evidence_of(self, run: Run) -> float:
        """Return log Z_q of a run that has not started, at these hyper-parameters; NaN if it cannot be computed.

        Parameters that this fit did not have keep their start. The run stays as it is.
        """
        engine, theta, n = run.engine, run.state.theta, len(self.shift)
        if n > len(theta) or not engine.has_plain_sites:
            return math.nan
        moved = torch.cat([engine.hyper_prior.mean[:n] + self.shift.to(theta), theta[n:]])
        state = engine.at(run.state, moved)
        frozen = engine.freeze(state, run.rows)
        begin = self._place_sites(frozen, state, run)
        enough = lambda move, change: move < SMALL_MOVE and change <= NEAR * run.total  # noqa: E731
        found = None if begin is None else find_fixed_point(run, begin, enough, MOST_SWEEPS, frozen)
        if found is None:
            return math.nan
        info = frozen.step(found, run.whole, run.reduce, None, True)[1]
        return math.nan if bool(info.failed) else float(info.evidence)

    def _place_sites(self, frozen: Engine, state: State, run: Run) -> State | None:
        """Return the state with this fit's sites, spread evenly over a row's sites on the same class."""
        if frozen.cached is None or frozen.cached.projection.a.shape[-1] != self.tau.shape[-1]:
            return None
        a = frozen.cached.projection.a
        classes = frozen.factor.sites(torch.cat([batch.y for batch in run.whole.split(frozen.chunk)]))
        count = scatter(torch.ones_like(classes, dtype=self.tau.dtype)[None], classes, a)[0]
        tau, nu = ((x / count.clamp_min(1)).T.gather(1, classes) for x in (self.tau, self.nu))
        sums = Sums((a * self.tau[:, None]) @ a.mT, (a @ self.nu[..., None])[..., 0])
        return state._replace(sites=state.sites._replace(tau=tau, nu=nu), sums=sums)


def find_learnt(run: Run) -> Learnt | None:
    """Return what a run of L-BFGS learnt; None for other runs, and if sites are not those of plain EP in float64 on the CPU."""
    if not run.plan.rough or not run.engine.has_plain_sites:
        return None
    rows = torch.cat([batch.y for batch in run.whole.split(run.engine.chunk)])
    classes = run.engine.factor.sites(rows)
    like = torch.empty(run.engine.shape[0], 0, dtype=torch.float64)
    tau, nu = scatter(torch.stack(run.state.sites[:2]), classes, like)
    return Learnt(run.state.theta - run.engine.hyper_prior.mean, tau, nu)
