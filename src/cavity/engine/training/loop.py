"""The whole training loop, in one place."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch

from cavity.common.ranks import Local
from cavity.engine.batches.in_memory import Batch
from cavity.engine.batches.stream import Data, Whole
from cavity.engine.inference import Engine, Optimiser, State
from cavity.engine.training.callbacks import Callback, check_row
from cavity.engine.training.convergence import (
    PROMISE,
    have_epochs_converged,
    have_sweeps_converged,
)
from cavity.engine.training.guard import Guard
from cavity.engine.training.optimisers import Adam
from cavity.engine.training.replay import Replay
from cavity.engine.training.steps import Steps

INNER_TOL = 1e-6  # per row, when sites are swept to convergence before a step
INNER_SWEEPS = 200
# after mini-batches, whose sweeps are long; ten times as many on full batches
FINAL_SWEEPS = 5
WARM_SWEEPS = 10
# share of max_seconds, and seconds, that a final sweep may take when time is up
OVERTIME = (0.25, 1.0)

# rows, rule for the hyper-parameters, whether these are all rows
Step = tuple[Whole, Optimiser | None, bool]


class Outcome(NamedTuple):
    """Means over the steps of an epoch."""

    objective: float
    evidence: float
    skipped: int = 0
    promise: float = 0.0  # gain that the gradient promises for a step on all rows


@dataclass
class Run:
    """A run in progress: its state, its history and how it ended."""

    engine: Engine
    rows: Data
    plan: Steps
    state: State
    reduce: Local = field(default_factory=Local)
    optimiser: Optimiser = field(default_factory=Adam)
    # finds the first q where there are poor optima near the prior
    warm_up_engine: Engine | None = None
    settles: bool = True  # False: the sites of a loose plan stay as they are at the end
    replays: bool = False  # record mini-batch steps and replay them
    # called with each row of the history
    report: Callable[[dict[str, Any]], None] = lambda row: None
    history: list[dict[str, Any]] = field(default_factory=list)
    converged: bool = False  # the objective converged, or a callback ended the run
    # a callback stopped the run, which goes on when it is resumed
    stopped: bool = False
    callbacks: tuple[Callback, ...] = ()
    resumed: bool = False  # the state comes from a checkpoint, in the middle of a run
    # sums over the current epoch's steps
    tally: list[float] = field(default_factory=lambda: [0.0, 0.0, 0, 0])
    started: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.guard = Guard(self.engine, self.reduce)
        self.whole = self.rows.whole()
        self.total = float(self.engine.total)
        # h before the last sweep at fixed hyper-parameters
        self.h_before: torch.Tensor | None = None
        self.final_sweeps: list[Outcome] = []  # of the sites, after training
        self.rate = self.plan.rate
        self.learns = len(self.state.theta) > 0  # otherwise only the sites are swept
        self.sweeps = 0  # of sites towards fixed points
        self.pace = 0.0  # seconds per row of the latest step
        self.promise = 0.0  # of the latest step
        self.replay: Replay | None = None

    def train(self) -> Run:
        """Run epochs to convergence or a limit, then make the sites consistent."""
        mini = self.plan.batch_size is not None
        with self.notify_callbacks():
            if not self.resumed:
                self.warm_up()
                if self.learns and not mini:
                    # at q = prior the gradient is zero, and a rule that reads only
                    # signs would follow rounding errors
                    self._steps([(self.whole, None, True)])

            with nullcontext() if self.learns else self._frozen():
                while not self.is_over():
                    steps = self._epoch()
                    if self.replays and self.learns and mini:
                        outcome = self._replay(steps)
                    else:
                        outcome = self._steps(steps)

                    self._end_pass(steps)
                    self.record(outcome)

            self.tally = [0.0, 0.0, 0, 0]  # of an epoch that max_seconds cut short

        if self.learns and self.engine.sites.sweeps:
            self._converge_sites()
        return self

    @contextmanager
    def notify_callbacks(self) -> Iterator[None]:
        """Call every callback's `start` before the block and its `end` after it."""
        for callback in self.callbacks:
            callback.start(self)
        yield
        for callback in self.callbacks:
            callback.end(self)

    def is_over(self) -> bool:
        """Return whether only the final sweeps are left.

        This may hold as soon as a run is resumed.
        """
        if len(self.history) >= self.plan.max_epochs:
            return True
        if self.reduce.agree(self.converged or self.stopped):
            return True

        return bool(self.history) and self.is_late()

    @cached_property
    def site_scale(self) -> torch.Tensor | None:
        """Factors on the stored sites [N 1]; None without weights.

        They make a row of weight w as long as w equal rows.
        """
        if self.engine.sites.tied or not self.engine.sites.weighted:
            return None

        pieces = self.whole.split(self.engine.chunk)
        weight = torch.cat([piece.weight for piece in pieces])
        power = -0.5 if self.engine.sites_are_totals else 0.5
        return weight[:, None] ** power

    def is_late(self) -> bool:
        """Return whether `max_seconds` have passed, on any rank."""
        limit = self.plan.max_seconds
        if limit is None:
            return False

        return self.reduce.agree(time.perf_counter() - self.started > limit)

    def count_rows_in_time(self) -> float:
        """Return how many rows can be visited once more.

        Any number, or, if time is up, as many as take little time.
        """
        limit = self.plan.max_seconds
        if limit is None or not self.is_late():
            return math.inf

        share, least = OVERTIME
        return max(share * limit, least) / max(self.pace, 1e-300)

    def has_time_to_sweep(self) -> bool:
        """Return whether one more sweep is in time, or takes little time if time is up."""
        most = self.count_rows_in_time()
        return math.isinf(most) or not self.reduce.agree(self.rows.n_rows > most)

    def warm_up(self) -> None:
        """Find a first q with the warm-up engine, if there is one.

        It makes a few sweeps, or one pass over mini-batches.
        """
        if self.warm_up_engine is None:
            return

        own = self.guard
        damping = self.state.damping
        self.guard = Guard(self.warm_up_engine, self.reduce)
        if self.plan.batch_size is None or not self.learns:
            self._set_damping(0.5)
            self._steps([(self.whole, None, True)] * WARM_SWEEPS)
        else:
            self._steps((batch, None, False) for batch in self._batches(0))

        own.repairs = self.guard.repairs
        self.guard = own
        state = self.state._replace(
            damping=damping, position=torch.zeros_like(self.state.position)
        )
        self.state = self.engine.sites.adopt(state)

    def _epoch(self) -> Iterator[Step]:
        """Return the steps of the next epoch.

        They are one pass, or one step of the hyper-parameters for schedule "outer".
        """
        plan = self.plan
        epoch = len(self.history)
        if not self.learns:
            self.h_before = self.state.sums.h
            return iter([(self.whole, None, True)])

        if plan.schedule == "outer":
            self.sweep(INNER_TOL, INNER_SWEEPS)
        if plan.batch_size is None:
            self._set_rate(epoch)
            return iter([(self.whole, self.optimiser, True)])

        return ((batch, self.optimiser, False) for batch in self._batches(epoch))

    def _batches(self, epoch: int) -> Iterator[Batch]:
        """Yield the mini-batches of a pass, from the state's position on."""
        assert self.plan.batch_size is not None
        generator = torch.Generator()
        generator.set_state(self.state.generator)
        done = int(self.state.position)  # above zero only after a resume
        count = self.rows.n_batches(self.plan.batch_size)
        for i, batch in enumerate(self.rows.batches(self.plan.batch_size, generator)):
            if i < done:
                continue

            self._set_rate(epoch + i / count)
            self.state = self.state._replace(position=self.state.position + 1)
            yield batch

        order = self.state.generator
        if self.plan.reshuffles:
            order = generator.get_state()
        self.state = self.state._replace(
            generator=order, position=torch.zeros_like(self.state.position)
        )

    def _end_pass(self, steps: Iterator[Step]) -> None:
        """Let a complete pass of mini-batches set the next order.

        Time may be up right after its last batch.
        """
        size = self.plan.batch_size
        if size is not None and int(self.state.position) == self.rows.n_batches(size):
            next(steps, None)

    def _steps(self, steps: Iterable[Step]) -> Outcome:
        """Take the steps until the time is up."""
        for batch, optimiser, full in steps:
            self._take(batch, optimiser, full)
            if optimiser is not None:
                for callback in self.callbacks:
                    callback.step(self)

            if self.is_late():
                break

        return self._outcome()

    def _take(self, batch: Whole, optimiser: Optimiser | None, full: bool) -> None:
        """Take a step, again after a repair."""
        info = None
        begun = time.perf_counter()
        while info is None:
            self.state, info = self.guard.advance(self.state, batch, optimiser, full)
        news = float(info.objective), float(info.evidence), int(info.skipped), 1
        self.tally = [old + new for old, new in zip(self.tally, news, strict=True)]
        self.promise = 0.0
        if info.promise is not None:
            self.promise = float(info.promise)

        rows = self.rows.n_rows
        if isinstance(batch, Batch):
            rows = len(batch.index)

        self.pace = (time.perf_counter() - begun) / max(1, rows)

    def _replay(self, steps: Iterator[Step]) -> Outcome:
        """Take the steps from a recording, some tens at a time."""
        if self.replay is None:
            self.replay = Replay(self.guard, self.optimiser, self.state)
        damping = self.state.damping
        more = True
        self.state = self.replay.load(self.state)._replace(damping=damping)
        each = ((batch, self.rate) for batch, _, _ in steps if isinstance(batch, Batch))
        while more:
            news, more = self.replay.run(each)
            self.tally = [old + new for old, new in zip(self.tally, news, strict=True)]
            self.state = self.state._replace(rate=torch.full_like(damping, self.rate))
            if more:
                for callback in self.callbacks:
                    callback.step(self)

            if self.is_late():
                break

        return self._outcome()

    def _outcome(self) -> Outcome:
        objective, evidence, skipped, count = self.tally
        self.tally = [0.0, 0.0, 0, 0]
        return Outcome(objective / count, evidence / count, int(skipped), self.promise)

    def sweep(self, tol: float, most: int, last: float = math.inf) -> list[Outcome]:
        """Sweep the sites at fixed hyper-parameters until log Z_q is flat.

        Sweeps end when it changes by less than `tol` per row, or when time is up.
        `last` is the objective before. Each outcome belongs to the state that its sweep
        started from.
        """
        found: list[Outcome] = []
        with self._frozen():
            while len(found) < most and not self.is_late():
                found.append(self._steps([(self.whole, None, True)]))
                if abs(found[-1].objective - last) <= tol * self.total:
                    break

                last = found[-1].objective

        return found

    @contextmanager
    def _frozen(self) -> Iterator[None]:
        """Use an engine with fixed hyper-parameters within the block.

        A block within another one shares its projection.
        """
        own = self.guard.engine
        if own.cached is None:
            self.guard.engine = own.freeze(self.state, self.rows)
        try:
            yield
        finally:
            self.guard.engine = own

    def _converge_sites(self) -> None:
        """Sweep the sites at the final hyper-parameters.

        Then q is EP's fixed point and not a running average. One sweep is made even if
        time is up, unless it would take long. A leap overshoots if q is far from the
        fixed point, so a damped sweep follows.
        """
        plan = self.plan
        start = time.perf_counter()
        if not self.has_time_to_sweep():
            self.history[-1] |= {"settling_sweeps": 0, "settling_seconds": 0.0}
            return

        mini = plan.batch_size is not None
        leaps = self.engine.removal > 0 or self.engine.factor.linear
        most = FINAL_SWEEPS if mini else 10 * FINAL_SWEEPS
        with self._frozen():
            if mini and not self.is_late():
                self._set_damping(1.0 if leaps else plan.sweep_damping)
                self.final_sweeps.append(self._steps([(self.whole, None, True)]))
            if mini:
                self._set_damping(plan.sweep_damping)

            first = self._steps([(self.whole, None, True)])
            self.final_sweeps.append(first)
            self.final_sweeps += self.sweep(0.1 * plan.tol, most - 1, first.objective)

        self.history[-1]["settling_sweeps"] = len(self.final_sweeps)
        self.history[-1]["settling_seconds"] = time.perf_counter() - start

    def evidence(self) -> float:
        """Return log Z_q of the current state.

        If time is up, return the value before the last sweep, or of the last epoch. NaN
        if the first epoch was interrupted.
        """
        if self.final_sweeps and self.is_late():
            return self.final_sweeps[-1].evidence
        if not self.has_time_to_sweep():
            if self.history:
                return float(self.history[-1]["log_evidence"])

            return math.nan

        _, info = self.engine.step(self.state, self.whole, self.reduce, None, True)
        return float(info.evidence)

    def _set_damping(self, damping: float) -> None:
        self.state = self.state._replace(
            damping=torch.full_like(self.state.damping, damping)
        )

    def _set_rate(self, progress: float) -> None:
        self.rate = self.plan.rate_at(progress)
        if not self.replays:
            self.state = self.state._replace(
                rate=torch.full_like(self.state.rate, self.rate)
            )

    def _has_converged(self) -> bool:
        """Return whether the sweeps, or the epochs of learning, have converged."""
        if self.learns:
            return have_epochs_converged(
                self.plan, self.history, self.engine.shape[0], self.total
            )

        move = math.inf
        h = self.state.sums.h
        if self.h_before is not None:
            move = float((h - self.h_before).norm() / h.norm().clamp_min(1e-300))
        objectives = [row["objective"] for row in self.history]
        return have_sweeps_converged(objectives, move, self.plan.tol, self.total)

    def record(self, outcome: Outcome) -> None:
        """Add an epoch to the history, and decide whether it was the last."""
        rate = 0.0
        if self.learns:
            rate = float(self.state.rate) * self.guard.caution

        row = {
            "epoch": len(self.history) + 1,
            "objective": outcome.objective,
            "log_evidence": outcome.evidence,
            "seconds": time.perf_counter() - self.started,
            "repairs": self.guard.repairs - sum(r["repairs"] for r in self.history),
            "skipped": outcome.skipped,
            "learning_rate": rate,
            "damping": float(self.state.damping) * self.guard.caution,
        }
        if outcome.promise:
            row[PROMISE] = outcome.promise
        self.history.append(row)
        self.state = self.state._replace(epoch=self.state.epoch + 1)
        self.converged = self._has_converged()
        # a checkpoint comes last, so it knows what the others returned
        for callback in self.callbacks:
            self.converged = bool(callback.epoch(self, row)) or self.converged
            check_row(row, callback)

        self.report(row)
        self.converged = self.reduce.agree(self.converged)
