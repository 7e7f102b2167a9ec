"""Sites at rest for given hyper-parameters: full sweeps with Anderson's extrapolation."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cavity.inference import State
from cavity.posterior import Sums
from cavity.training.loop import Run

MEMORY = 8  # sweeps that an extrapolation looks back on
WORSE = 10.0  # times the best move so far: the extrapolation is given up


def rest(run: Run, state: State, tol: float, most: int) -> State | None:
    """The state whose next sweep would move sites (or sums, where there are none) by `tol` of their size; None where one fails.

    At fixed hyper-parameters the sums are linear in the sites, so the weights that extrapolate the ones do so for the others.
    """
    known: list[tuple[Tensor, State]] = []  # what each sweep moved, and the state after it
    best, safe = math.inf, state
    for _ in range(most):
        new, info = run.engine.step(state, run.whole, run.reduce, None, True)
        if bool(info.failed):
            if not known:
                return None
            known, state = [], safe
            continue
        move = _unknowns(new) - _unknowns(state)
        size = float(move.norm() / (1 + _unknowns(new).norm()))
        if size < tol:
            return new
        if size > WORSE * best and known:
            known, state = [], safe
            continue
        if size < best:
            best, safe = size, new
        known = [*known[1 - MEMORY :], (move, new)]
        state = _extrapolated(known) if len(known) > 1 else new
    return safe


def _extrapolated(known: list[tuple[Tensor, State]]) -> State:
    """The last state less Σ w_i (state i+1 − state i), w such that the same of the moves is shortest."""
    moves, states = torch.stack([move for move, _ in known], 1), [state for _, state in known]
    gaps, last = moves.diff(dim=1), moves[:, -1:]
    w = torch.linalg.lstsq(gaps, last, driver="gelsd" if last.is_cpu else None).solution[:, 0]
    end = states[-1]
    tau, nu = (_mixed([s.sites[i] for s in states], w) for i in (0, 1))
    sums = Sums(_mixed([s.sums.P for s in states], w), _mixed([s.sums.h for s in states], w))
    return end._replace(sites=end.sites._replace(tau=tau, nu=nu), sums=sums)


def _mixed(values: list[Tensor], w: Tensor) -> Tensor:
    mixed: Tensor = values[-1] - torch.tensordot(w.to(values[-1]), torch.stack(values).diff(dim=0), dims=1)
    return mixed


def _unknowns(state: State) -> Tensor:
    parts = state.sites[:2] if len(state.sites.tau) else state.sums
    return torch.cat([t.double().flatten() for t in parts])
