"""Ranks that take some steps alone: how they share what they found, and how many steps to take.

Sites add. Between two exchanges a rank counts each of its rows `world` times, so that its sums stand for all rows; the mean of the
ranks' sums then holds every row once. It differs from a sum in every step only in the cavities, which lack the other ranks'
latest sites, and in the hyper-parameters, which each rank steps with its own rows. Their gradients are √world times as noisy, and
Adam's steps would be as much shorter: the rate makes up for it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from cavity.common.linalg import pack_symmetric, unpack_symmetric
from cavity.distributed import Local, T
from cavity.inference import Engine, State
from cavity.inference.posterior import Sums
from cavity.training.guard import Guard

MOST_EXACT = 0.1  # share of a step's time that a sum in every step may take
MOST_ALONE = 0.05  # and that an exchange may take of the steps before it
MOST_STEPS = 64
# in a pass: a window that covers much of the table has few sites of other ranks in its cavities
LEAST_MEETINGS = 4
PROBE_STEPS = 6  # steps with a sum in each, of which the last four are timed
PROBES = 3


class Alone(Local):
    """One rank between two exchanges: its rows stand for those of all ranks, whose number is the factor on every sum."""

    def __init__(self, reduce: Local) -> None:
        self.rank, self.world = reduce.rank, reduce.world

    def sum(self, totals: T) -> T:
        return type(totals)(*(t * self.world for t in totals))


class Exchange:
    """Replaces the state of every rank by the mean over ranks. What a rank has changed since the last time travels in float32."""

    def __init__(self, engine: Engine, reduce: Local) -> None:
        self.engine, self.reduce = engine, reduce
        self.common: Tensor | None = None  # what the ranks last agreed on

    def start(self, state: State) -> None:
        """Remember the state, which is the same on all ranks."""
        self.common = flatten_state(state)

    def meet(self, state: State, guard: Guard, tally: list[float]) -> tuple[State, list[float]]:
        """Return the common state and the mean of the tallies."""
        assert self.common is not None
        mine = flatten_state(state)
        told = torch.tensor([guard.caution, *tally], dtype=torch.float64, device=mine.device)
        moved = self.reduce.average(torch.cat([mine - self.common, told]).float()).double()
        self.common = self.common + moved[: len(mine)]
        guard.caution, *tally = moved[len(mine) :].tolist()
        guard.good, guard.undo = None, []  # a state of this rank alone is not one to go back to
        return restore_state(self.common, state, self.engine), tally


def flatten_state(state: State) -> Tensor:
    """Return what ranks exchange of a state as one float64 vector."""
    return torch.cat([part.reshape(-1).double() for part in _exchanged(state)])


def _exchanged(state: State) -> tuple[Tensor, ...]:
    P, h = state.sums
    return pack_symmetric(P), h, state.theta, *state.optimiser, state.clock, state.jitter


def restore_state(vector: Tensor, like: State, engine: Engine) -> State:
    targets = _exchanged(like)
    pieces = torch.split(vector, [t.numel() for t in targets])
    P, h, theta, *rest = (p.reshape(t.shape).to(t.dtype) for p, t in zip(pieces, targets, strict=True))
    sums = Sums(unpack_symmetric(P, like.sums.P.shape[-1]), h)
    state = like._replace(sums=sums, optimiser=tuple(rest[:-2]), clock=rest[-2], jitter=rest[-1])
    return engine.at(state, theta)


class Costs(NamedTuple):
    """Seconds of a step's own work, of a sum in every step, and of an exchange."""

    work: float
    exact: float
    exchange: float


def choose_steps(costs: Costs, n_batches: int) -> int:
    """Return how many steps to take between exchanges; 1 is a sum in every step."""
    if costs.exact <= MOST_EXACT * costs.work:
        return 1
    wanted = math.ceil(costs.exchange / (MOST_ALONE * max(costs.work, 1e-9)))
    most = min(MOST_STEPS, n_batches // LEAST_MEETINGS)
    return max(1, min(max(2, wanted), most))


def measure_costs(state: State, reduce: Local, steps: list[float]) -> Costs:
    """Time both ways to communicate; `steps` are the seconds of steps with a sum in each. The slowest rank counts."""
    C, M = state.sums.h.shape
    numbers = C * M * (M + 1) // 2 + C * M + len(state.theta)
    exact = torch.zeros(numbers, dtype=torch.float64)
    exchanged = torch.zeros_like(flatten_state(state), dtype=torch.float32)
    each = [_time(partial(reduce.average, x), reduce) for x in (exact, exchanged)]
    found = [sorted(steps)[len(steps) // 2], *each]
    whole, sum_seconds, exchange = (max(column) for column in zip(*reduce.gather(found), strict=True))
    return Costs(max(whole - sum_seconds, 0.0), sum_seconds, exchange)


def _time(communicate: Callable[[], object], reduce: Local) -> float:
    """Return the smallest time of a few communications, each right after the ranks have met."""
    seconds = []
    for _ in range(PROBES):
        reduce.agree(False)
        start = time.perf_counter()
        communicate()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
