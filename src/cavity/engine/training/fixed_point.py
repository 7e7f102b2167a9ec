"""The fixed point of the sites at given hyper-parameters: full sweeps with Anderson
acceleration.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cavity.common.ranks import Local
from cavity.engine.inference import Engine, Factored, State
from cavity.engine.inference.posterior import Sums
from cavity.engine.training.loop import Run

MEMORY = 8  # sweeps that an extrapolation uses
# restart the extrapolation after a move of more than this times the smallest one
WORSE = 10.0


class Rest(NamedTuple):
    """When sites have converged: log Z_q is stationary in them, and converges long
    before they do.
    """

    tol: float  # of the objective per row
    small_move: (
        # of the sites in a sweep relative to their size (of the sums, if rows have no
        # sites)
        float
    )
    most: int  # sweeps
    # move of the sites that leaves the objective within its tolerance
    tiny: float = 0.0
    collect: bool = (
        # whether to begin with the sums of the sites at the state's hyper-parameters
        False
    )


def find_fixed_point(
    run: Run, state: State, rest: Rest, engine: Engine | None = None
) -> State | None:
    """Sweep the sites at the state's hyper-parameters until they have converged or time
    is up.

    Return the first converged state, else the one with the smallest move; None if the
    first sweep fails. At fixed hyper-parameters the sums are linear in the sites, so
    the same weights extrapolate both. `engine` is the run's, frozen at this state, if
    it is needed afterwards.
    """
    # what each sweep moved, and the state after it
    known: list[tuple[Tensor, State]] = []
    scale = run.site_scale
    if run.engine.sites.tied:
        reduce = Local()
    else:
        reduce = run.reduce

    best = math.inf
    safe = state
    last = math.inf
    factored: Factored | None = None
    engine = engine or run.engine.freeze(state, run.rows)
    if rest.collect:
        state = engine.collect(state, run.whole, run.reduce)
    for _ in range(rest.most):
        run.sweeps += 1
        new, info = engine.step(
            state, run.whole, run.reduce, None, True, factored=factored
        )
        factored = info.factored
        if bool(info.failed):
            if not known:
                return None

            known = []
            state = safe
            last = math.inf
            continue

        reached = _unknowns(new, scale)
        move = reached - _unknowns(state, scale)
        size = _norm(reduce, move) / (1 + _norm(reduce, reached))
        change = abs(float(info.objective) - last)
        last = float(info.objective)
        at_rest = size < rest.small_move and (
            change / run.total <= rest.tol or size < rest.tiny
        )
        if at_rest or run.is_late():
            return new
        if size > WORSE * best and known:
            known = []
            state = safe
            last = math.inf
            continue

        if size < best:
            best = size
            safe = new
        known = [*known[1 - MEMORY :], (move, new)]
        if len(known) > 1:
            state = _extrapolate(known, reduce)
        else:
            state = new

    return safe


def _norm(reduce: Local, values: Tensor) -> float:
    return math.hypot(*reduce.gather(float(values.norm())))


def _extrapolate(known: list[tuple[Tensor, State]], reduce: Local) -> State:
    """Return the last state − Σ w_i (state i+1 − state i), with w that makes the same
    combination of all ranks' moves shortest.
    """
    # column-major, as LAPACK takes it
    moves = torch.stack([move for move, _ in known]).mT
    states = [state for _, state in known]
    moves = torch.cat(reduce.gather(torch.linalg.qr(moves, mode="r").R.cpu()))
    w = (
        torch.linalg.lstsq(moves.diff(dim=1), moves[:, -1:], driver="gelsd")
        .solution[:, 0]
        .tolist()
    )
    end = states[-1]
    moving = [(s.sites.tau, s.sites.nu, *s.sums) for s in states]
    tau, nu, P, h = (_combine(values, w) for values in zip(*moving, strict=True))
    return end._replace(sites=end.sites._replace(tau=tau, nu=nu), sums=Sums(P, h))


def _combine(values: Sequence[Tensor], w: list[float]) -> Tensor:
    """Return values[-1] − Σ w_i (values[i+1] − values[i])."""
    mixed = values[-1].clone()
    for value, left, right in zip(values, [0.0, *w], [*w, 0.0], strict=True):
        mixed.add_(value, alpha=right - left)
    return mixed


def _unknowns(state: State, scale: Tensor | None) -> Tensor:
    """Return the sites, or the sums if rows have none, as a vector whose length does
    not tell weights from repetitions.
    """
    if not len(state.sites.tau):
        return torch.cat([t.double().flatten() for t in state.sums])

    sites = (t.double() for t in state.sites[:2])
    return torch.cat([(t if scale is None else t * scale).flatten() for t in sites])
