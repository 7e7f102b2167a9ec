"""Mini-batch steps on a GPU as a recorded CUDA graph.

Steps do not wait for Python, and failures are read every few steps.

A step is recorded once per number of rows and replayed with new rows. The state lives
in tensors that the graph writes in place. After a failed step nothing moves; the guard
repairs, and the rows since then are run again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from cavity.common.linalg import Factor
from cavity.engine.batches.in_memory import Batch
from cavity.engine.inference import Factored, Optimiser, State, copy_state
from cavity.engine.inference.state import map_tensors
from cavity.engine.training.guard import RECOVER, Guard

LAG = 32  # steps launched before failures are read


class Recorded(NamedTuple):
    """A step for batches of one size: fill `batch`, call `run`."""

    batch: Batch
    run: Callable[[], None]


class Waiting(NamedTuple):
    """A step that was launched and not yet checked."""

    batch: Batch
    rate: float
    caution: float  # of the guard, before the step


class Replay:
    """Runs the steps of a guard's engine with an optimiser, recorded if the device can."""

    def __init__(
        self, guard: Guard, optimiser: Optimiser, state: State, lag: int = LAG
    ) -> None:
        self.guard = guard
        self.lag = lag
        self.engine = guard.engine
        self.optimiser = optimiser
        device = state.theta.device
        self.state = copy_state(state)
        factor = self.engine.sites.factorise(self.state.sums)
        self.factored = Factored(self.state.sums.P, map_tensors(Tensor.clone, factor))
        self.going = torch.ones((), dtype=torch.bool, device=device)
        # whether the state before the failed step was
        self.broken = torch.zeros_like(self.going)
        # objective, evidence, skipped, steps
        self.tally = torch.zeros(4, dtype=torch.float64, device=device)
        self.recorded: dict[int, Recorded] = {}

    def load(self, state: State) -> State:
        """Continue from here. Return the state whose tensors the steps write."""
        factor = self.engine.sites.factorise(state.sums)
        _copy(
            (*self._moving(), *self.state.sites),
            (*_moving(state, factor), *state.sites),
        )
        self.damping = float(state.damping)
        self.guard.factored = None  # steps write into the tensors that it knows
        self.state = self.state._replace(
            generator=state.generator, epoch=state.epoch, position=state.position
        )
        return self.state

    def run(self, steps: Iterator[tuple[Batch, float]]) -> tuple[list[float], bool]:
        """Take the next steps, and repair those that fail.

        `steps` are batches with their rates.

        Return sums over the steps (objective, evidence, skipped updates, number of
        steps), and whether there may be more of them.
        """
        self.tally.zero_()
        waiting = [
            self._launch(batch, rate, self.guard.caution)
            for batch, rate in islice(steps, self.lag)
        ]
        taken = 0
        more = len(waiting) == self.lag
        while waiting:
            good = int(self.tally[3]) - taken
            taken += good
            if good:
                self.guard.in_a_row = 0
            if waiting[good:]:
                self._repair(waiting[good].caution)

            waiting = [
                self._launch(step.batch, step.rate, self.guard.caution)
                for step in waiting[good:]
            ]

        return self.tally.tolist(), more

    def _launch(self, batch: Batch, rate: float, caution: float) -> Waiting:
        size = len(batch.index)
        if size not in self.recorded:
            self.recorded[size] = self._record(batch)

        recorded = self.recorded[size]
        _copy(recorded.batch, batch)
        self.state.rate.fill_(rate * caution)
        self.state.damping.fill_(self.damping * caution)
        recorded.run()
        self.guard.caution = min(1.0, caution * RECOVER)
        return Waiting(batch, rate, caution)

    def _repair(self, caution: float) -> None:
        self.guard.caution = caution
        self.state.jitter.copy_(self.guard.repair(self.state, bool(self.broken)).jitter)
        self.going.fill_(True)

    def _record(self, batch: Batch) -> Recorded:
        fixed: Batch = map_tensors(Tensor.clone, batch)
        step = partial(self._step, fixed)
        if not fixed.index.is_cuda:
            return Recorded(fixed, step)

        tensors = (
            *self._moving(),
            *self.state.sites,
            self.going,
            self.broken,
            self.tally,
        )
        kept = [t.clone() for t in tensors]
        graph = _graph(step)
        _copy(tensors, kept)
        return Recorded(fixed, step if graph is None else graph.replay)

    def _step(self, batch: Batch) -> None:
        """Take a step.

        It moves the state if it succeeds, and nothing if it or a step before it failed.
        """
        new, info = self.engine.step(
            self.state,
            batch,
            self.guard.reduce,
            self.optimiser,
            False,
            factored=self.factored,
            going=self.going,
        )
        _copy(self._moving(), _moving(new, info.factored.factor))
        good = ~info.failed
        one = torch.ones_like(info.objective)
        news = torch.stack([info.objective, info.evidence, info.skipped.double(), one])
        self.tally += torch.where(good, news, torch.zeros_like(news))
        self.broken.copy_(torch.where(self.going, info.broken, self.broken))
        self.going.copy_(good)

    def _moving(self) -> list[Tensor]:
        return _moving(self.state, self.factored.factor)


def _graph(step: Callable[[], None]) -> torch.cuda.CUDAGraph | None:
    """Record the step as a CUDA graph.

    Warn and return None if the step synchronises with the GPU, which a graph cannot
    hold.
    """
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(main)
    try:
        with torch.cuda.stream(side):
            # libraries create handles and workspaces on first use, and we constants
            step()
            with _forbid_synchronisation():
                step()

        main.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # other threads may pin memory meanwhile
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            step()
    except RuntimeError as error:
        torch.cuda.set_stream(main)
        torch.cuda.synchronize()
        first_line = str(error).partition("\n")[0].rstrip(".")
        warnings.warn(
            "the steps of this fit cannot be recorded as a CUDA graph and run several "
            f"times slower: {first_line}. "
            "The usual cause is a kernel of your own that reads a value with .item(), "
            "bool() or .cpu().",
            RuntimeWarning,
            stacklevel=2,
        )
        return None

    return graph


@contextmanager
def _forbid_synchronisation() -> Iterator[None]:
    """Let operations that wait for the GPU raise.

    A recording would fail at them and leave the device in a bad state.
    """
    before = torch.cuda.get_sync_debug_mode()
    # torch warns that it does not find every such operation
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _moving(state: State, factor: Factor) -> list[Tensor]:
    """Return the tensors that a step replaces."""
    return [
        state.theta,
        *state.sums,
        *state.optimiser,
        state.clock,
        state.jitter,
        *factor,
    ]


# the second nest into the first
_copy = partial(map_tensors, partial(Tensor.copy_, non_blocking=True))
