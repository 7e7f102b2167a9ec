"""The fixed point of the sites: full sweeps with Anderson acceleration."""

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
    """When sites have converged.

    log Z_q is stationary in the sites, and converges long before they do.
    """

    tol: float  # of the objective per row
    # of the sites in a sweep relative to their size; of the sums if none are stored
    small_move: float
    most: int  # sweeps
    # move of the sites that leaves the objective within its tolerance
    tiny: float = 0.0
    # whether to begin with the sums of the sites at the state's hyper-parameters
    collect: bool = False


def find_fixed_point(
    run: Run, state: State, rest: Rest, engine: Engine | None = None
) -> State | None:
    """Return the state at rest: see `sweep_to_rest`."""
    found, _ = sweep_to_rest(run, state, rest, engine)
    return found


def sweep_to_rest(
    run: Run, state: State, rest: Rest, engine: Engine | None = None
) -> tuple[State | None, Factored | None]:
    """Sweep the sites until they have converged or time is up.

    The hyper-parameters are the state's.

    Return the first converged state, else the one with the smallest move; None if the
    first sweep fails. At fixed hyper-parameters the sums are linear in the sites, so
    the same weights extrapolate both.

    `engine`: the run's engine frozen at this state, if the caller needs it afterwards.
    The last factor of q is returned, too: that of the new state, if it came last.
    """
    # what each sweep moved, and the state after it
    known: list[tuple[Tensor, State]] = []
    scale = run.site_scale
    reduce = run.reduce
    if run.engine.sites.tied:
        reduce = Local()

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
                return None, None

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
            return new, factored
        if size > WORSE * best and known:
            known = []
            state = safe
            last = math.inf
            continue

        if size < best:
            best = size
            safe = new

        known = [*known[1 - MEMORY :], (move, new)]
        state = new
        if len(known) > 1:
            state = _extrapolate(known, reduce)

    return safe, factored


def _norm(reduce: Local, values: Tensor) -> float:
    return math.hypot(*reduce.gather(float(values.norm())))


def _extrapolate(known: list[tuple[Tensor, State]], reduce: Local) -> State:
    """Return the last state − Σ w_i (state i+1 − state i).

    w makes the same combination of all ranks' moves shortest.
    """
    # column-major, as LAPACK takes it
    moves = torch.stack([move for move, _ in known]).mT
    states = [state for _, state in known]
    moves = torch.cat(reduce.gather(torch.linalg.qr(moves, mode="r").R.cpu()))
    found = torch.linalg.lstsq(moves.diff(dim=1), moves[:, -1:], driver="gelsd")
    w = found.solution[:, 0].tolist()

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
    """Return the sites as a vector, or the sums if rows do not store sites.

    Its length does not tell weights from repetitions.
    """
    if not len(state.sites.tau):
        return torch.cat([t.double().flatten() for t in state.sums])

    sites = torch.stack([state.sites.tau.double(), state.sites.nu.double()])
    if scale is not None:
        sites = sites * scale

    return sites.flatten()
