"""Mini-batch steps on a GPU as a recorded CUDA graph: steps do not wait for Python, and failures are read every few steps.

A step is recorded once per number of rows and replayed with new rows. The state lives in tensors that the graph writes in place.
After a failed step nothing moves, so the guard finds the state before it and the rows since then are run again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from cavity.inference import Optimiser, Sites, State, copy_state
from cavity.rows.batches.in_memory import Batch
from cavity.training.guard import RECOVER, Guard

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

    def __init__(self, guard: Guard, optimiser: Optimiser, state: State, most_rows: int) -> None:
        self.guard, self.engine, self.optimiser = guard, guard.engine, optimiser
        device = state.theta.device
        self.state = copy_state(state)
        # the last state from which a step succeeded
        self.before = copy_state(state)._replace(sites=self.state.sites)
        # old values of the rows written since then; a step on fewer rows repeats its last one
        kept = max([most_rows, *(len(index) for index, _ in guard.undo)])
        index = torch.zeros(0 if self.engine.sites.tied else kept, dtype=torch.int64, device=device)
        self.undo = index, Sites(*(x[index] for x in state.sites))
        self.going = torch.ones((), dtype=torch.bool, device=device)
        self.tally = torch.zeros(4, dtype=torch.float64, device=device)  # objective, evidence, skipped, steps
        self.recorded: dict[int, Recorded] = {}
        self.waiting: list[Waiting] = []
        self.seen = 0  # steps in the tally that were checked

    def load(self, state: State) -> State:
        """Continue from here, with the guard's rollback. Return the state whose tensors the steps write."""
        if not _same(state, self.state):
            _fill(self.state, state)
            for kept, row in zip(self.state.sites, state.sites, strict=True):
                kept.copy_(row)
            good = state if self.guard.good is None else self.guard.good
            _fill(self.before, good)
            for index, rows in self.guard.undo:
                self._keep_rows(index, rows, torch.ones_like(self.going))
        self.damping = float(state.damping)
        self.state = self.state._replace(
            generator=state.generator, epoch=state.epoch, position=state.position
        )
        return self.state

    def push(self, batch: Batch, rate: float) -> None:
        self._launch(Waiting(batch, rate, self.guard.caution))
        if len(self.waiting) >= LAG:
            self.check()

    def check(self) -> None:
        """Check the launched steps; repair and run again from the first that failed."""
        while self.waiting:
            good = int(self.tally[3]) - self.seen
            failed = self.waiting[good:]
            self.seen += good
            self.waiting = []
            if good:
                self.guard.in_a_row = 0
                self.guard.good = self.before
                self.guard.undo = [self.undo] if len(self.undo[0]) else []
            if failed:
                self._repair(failed[0].caution)
                for step in failed:
                    self._launch(step._replace(caution=self.guard.caution))

    def outcome(self) -> list[float]:
        """Return sums over the steps since the last call: objective, evidence, skipped updates, number of steps."""
        self.check()
        sums = self.tally.tolist()
        self.tally.zero_()
        self.seen = 0
        return sums

    def _launch(self, step: Waiting) -> None:
        batch = step.batch
        recorded = self.recorded.get(len(batch.index))
        if recorded is None:
            recorded = self.recorded[len(batch.index)] = self._record(batch)
        for fixed, given in zip(recorded.batch, batch, strict=True):
            fixed.copy_(given, non_blocking=True)
        self.state.rate.fill_(step.rate * step.caution)
        self.state.damping.fill_(self.damping * step.caution)
        recorded.run()
        self.waiting.append(step)
        self.guard.caution = min(1.0, step.caution * RECOVER)

    def _repair(self, caution: float) -> None:
        self.guard.caution = caution
        _fill(self.state, self.guard.go_back(self.state, None))
        self.going.fill_(True)

    def _record(self, batch: Batch) -> Recorded:
        fixed = Batch(*(t.clone() for t in batch))
        kept = [t.clone() for t in self._tensors()] if fixed.index.is_cuda else []
        graph = _graph(lambda: self._step(fixed)) if fixed.index.is_cuda else None
        for tensor, old in zip(self._tensors() if kept else [], kept, strict=True):
            tensor.copy_(old)
        return Recorded(fixed, (lambda: self._step(fixed)) if graph is None else graph.replay)

    def _step(self, batch: Batch) -> None:
        """Take a step. It moves the state if it succeeds, and nothing if it or a step before it failed."""
        tried, info = self.engine.step(self.state, batch, self.guard.reduce, self.optimiser, False)
        good = self.going & ~info.failed
        if info.undo is not None:
            self._write_rows(good, *info.undo)
        for kept, now in zip(_moving(self.before), _moving(self.state), strict=True):
            torch.where(good, now, kept, out=kept)
        for now, new in zip(_moving(self.state), _moving(tried), strict=True):
            torch.where(good, new, now, out=now)
        news = torch.stack(
            [info.objective, info.evidence, info.skipped.double(), torch.ones_like(info.objective)]
        )
        self.tally += torch.where(good, news, torch.zeros_like(news))
        self.going.copy_(good)

    def _write_rows(self, good: Tensor, index: Tensor, old: Sites) -> None:
        """Restore the rows that the engine wrote if the step failed; otherwise remember their old values."""
        for table, rows in zip(self.state.sites, old, strict=True):
            table[index] = torch.where(good, table[index], rows)
        self._keep_rows(index, old, good)

    def _keep_rows(self, index: Tensor, rows: Sites, good: Tensor) -> None:
        more = len(self.undo[0]) - len(index)
        for kept, new in zip((self.undo[0], *self.undo[1]), (index, *rows), strict=True):
            padded = torch.cat([new, *[new[-1:]] * more])
            kept.copy_(torch.where(good, padded, kept))

    def _tensors(self) -> list[Tensor]:
        index, rows = self.undo
        own = *self.state.sites, index, *rows, self.going, self.tally
        return [*_moving(self.state), *_moving(self.before), *own]


def _graph(step: Callable[[], None]) -> torch.cuda.CUDAGraph | None:
    """Record the step as a CUDA graph. Warn and return None if the step synchronises with the GPU, which a graph cannot hold."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(main)
    try:
        with torch.cuda.stream(side):
            step()  # libraries create handles and workspaces on first use, and so do we constants
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
        warnings.warn(
            f"the steps of this fit cannot be recorded as a CUDA graph and run several times slower: {_first_line(error)}. "
            "The usual cause is a kernel of your own that reads a value with .item(), bool() or .cpu().",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return graph


@contextmanager
def _forbid_synchronisation() -> Iterator[None]:
    """Let operations that wait for the GPU raise: a recording would fail at them and leave the device in a bad state."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():  # torch warns that it does not find every such operation
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")


def _moving(state: State) -> list[Tensor]:
    """Return the tensors that a step replaces."""
    return [state.theta, *state.sums, *state.optimiser, state.clock, state.jitter]


def _same(a: State, b: State) -> bool:
    return a.theta is b.theta and a.sums.P is b.sums.P and a.sites.tau is b.sites.tau


def _fill(state: State, source: State) -> None:
    """Copy everything but the sites and the position in the data."""
    for kept, new in zip(_moving(state), _moving(source), strict=True):
        kept.copy_(new)
