"""Sites at rest for given hyper-parameters: full sweeps with Anderson's extrapolation."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from cavity.distributed import Local
from cavity.inference import State
from cavity.posterior import Sums
from cavity.training.loop import Run

MEMORY = 8  # sweeps that an extrapolation looks back on
WORSE = 10.0  # times the best move so far: the extrapolation is given up


def find_fixed_point(
    run: Run, state: State, enough: Callable[[float, float], bool], most: int
) -> State | None:
    """The state after the first sweep that was enough, or that moved least of `most`; None where the first one fails.

    `enough` is asked with what a sweep moved, relative to the size of the sites (or of the sums, where there are none), and with
    the change of the objective. At fixed hyper-parameters the sums are linear in the sites, so the weights that extrapolate the
    ones do so for the others.
    """
    known: list[tuple[Tensor, State]] = []  # what each sweep moved, and the state after it
    best, safe, last = math.inf, state, math.inf
    engine = run.engine.still(state, run.rows)
    for _ in range(most):
        new, info = engine.step(state, run.whole, run.reduce, None, True)
        if bool(info.failed):
            if not known:
                return None
            known, state, last = [], safe, math.inf
            continue
        move = _unknowns(new) - _unknowns(state)
        size = _norm(run.reduce, move) / (1 + _norm(run.reduce, _unknowns(new)))
        change, last = abs(float(info.objective) - last), float(info.objective)
        if enough(size, change):
            return new
        if size > WORSE * best and known:
            known, state, last = [], safe, math.inf
            continue
        if size < best:
            best, safe = size, new
        known = [*known[1 - MEMORY :], (move, new)]
        state = _extrapolated(known, run.reduce) if len(known) > 1 else new
    return safe


def _norm(reduce: Local, values: Tensor) -> float:
    return math.hypot(*reduce.gather(float(values.norm())))


def _extrapolated(known: list[tuple[Tensor, State]], reduce: Local) -> State:
    """The last state less Σ w_i (state i+1 − state i), w such that the same of the moves is shortest.

    The moves of all ranks under each other ask for the same w as their triangular factors do.
    """
    moves, states = torch.stack([move for move, _ in known], 1), [state for _, state in known]
    moves = torch.cat(reduce.gather(torch.linalg.qr(moves, mode="r").R.cpu()))
    w = torch.linalg.lstsq(moves.diff(dim=1), moves[:, -1:], driver="gelsd").solution[:, 0]
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
