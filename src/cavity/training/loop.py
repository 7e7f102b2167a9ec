"""The whole training loop, in one place."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from cavity.data import Batch, Data
from cavity.distributed import Local
from cavity.errors import BadInput
from cavity.inference import Engine, Optimiser, State
from cavity.posterior import posterior
from cavity.training.callbacks import Callback
from cavity.training.guard import Guard, as_scalar
from cavity.training.replay import Replay

WINDOW = 10  # epochs over which an improvement counts
INNER_TOL = 1e-6  # per row, when sites are swept to convergence before a step
INNER_SWEEPS = 200
FINAL_SWEEPS = 5  # after mini-batches, whose sweeps are long; on full batches ten times as many
WARM_SWEEPS = 10
STILL = 0.01  # relative move of h in a sweep, in units of √tol

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Plan:
    """How to train."""

    learn: bool
    schedule: str  # inner-approx, inner-exact, outer
    optimiser: Optimiser
    rate: float
    final_rate: float  # reached at max_epochs, by exponential decay
    damping: float
    sweep_damping: float  # of full sweeps after mini-batches
    batch_size: int | None
    max_epochs: int
    tol: float
    max_seconds: float | None
    leap: bool = True  # after mini-batches, one full sweep may replace all sites at once
    warm_up: Engine | None = None  # finds the first q, where the run's own engine has poor optima nearby
    reshuffle: bool = True  # every pass has an order of its own
    replay: bool = False  # mini-batch steps are recorded and replayed
    report: Report = lambda row: None


class Outcome(NamedTuple):
    """Means over an epoch's steps."""

    objective: float
    evidence: float
    skipped: int = 0


@dataclass
class Run:
    """A run under way: its state, its record and how it ended."""

    engine: Engine
    rows: Data
    plan: Plan
    state: State
    reduce: Local = field(default_factory=Local)
    history: list[dict[str, Any]] = field(default_factory=list)
    converged: bool = False  # the objective settled, or a callback said stop
    callbacks: tuple[Callback, ...] = ()
    resumed: bool = False  # the state comes from a checkpoint, in the middle of a run
    tally: list[float] = field(default_factory=lambda: [0.0, 0.0, 0, 0])  # the sums of an epoch under way
    started: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.guard = Guard(self.engine, self.reduce)
        self.whole = self.rows.whole()
        self.total = float(self.engine.total)
        self.moved = math.inf
        self.settling: list[Outcome] = []  # of the sweeps after training
        self.rate = self.plan.rate
        self.replay: Replay | None = None

    def train(self) -> Run:
        """Epochs until the objective settles or a limit is reached, then the sites are made consistent."""
        for callback in self.callbacks:
            callback.start(self)
        if not self.resumed:
            self._prepare()
        with nullcontext() if self.plan.learn else self._still():
            while not self.over():
                self.record(self._epoch(len(self.history)))
        self.tally = [0.0, 0.0, 0, 0]  # of an epoch that was under way when the time was up
        for callback in self.callbacks:
            callback.end(self)
        if self.plan.learn and self.engine.sites.sweeps:
            self._settle_sites()
        return self

    def over(self) -> bool:
        """Whether there is nothing left to do but to settle the sites; a resumed run may be there already."""
        if len(self.history) >= self.plan.max_epochs or self.reduce.agree(self.converged):
            return True
        return bool(self.history) and self.late()

    def _prepare(self) -> None:
        """A first q, where the first step of the hyper-parameters needs one."""
        self.warm_up()
        if self.plan.learn and self.plan.batch_size is None:
            # at q = prior the gradient is zero, and a rule that reads only signs would follow rounding errors
            self._steps([(self.whole, None, True)])

    def warm_up(self) -> None:
        """A first q by another engine, where the plan has one: a few sweeps, or a pass over mini-batches."""
        if self.plan.warm_up is None:
            return
        own, damping = self.guard, self.state.damping
        self.guard = Guard(self.plan.warm_up, self.reduce)
        if self.plan.batch_size is None or not self.plan.learn:
            self.state = self.state._replace(damping=as_scalar(0.5, damping))
            self._steps([(self.whole, None, True)] * WARM_SWEEPS)
        else:
            self._steps((batch, None, False) for batch in self._batches(0))
        state = self.state._replace(damping=damping, position=torch.zeros_like(self.state.position))
        if self.guard.good is not None and bool(posterior(state.sums).failed):
            # a step that spoils the state is noticed only in the next one, and this was the last
            state = state._replace(sums=self.guard.good.sums, clock=self.guard.good.clock)
        own.repairs = self.guard.repairs
        theta = self.engine.sites.adopt(state.theta, state.sums)
        self.guard, self.state = own, self.engine.at(state, theta)

    def _epoch(self, epoch: int) -> Outcome:
        """One pass (or one hyper-parameter step of "outer")."""
        plan = self.plan
        if not plan.learn:
            before = self.state.sums.h
            outcome = self._steps([(self.whole, None, True)])
            self.moved = float(
                (self.state.sums.h - before).norm() / self.state.sums.h.norm().clamp_min(1e-300)
            )
            return outcome
        if plan.schedule == "outer":
            self.sweep(INNER_TOL, INNER_SWEEPS)
        if plan.batch_size is None:
            self._set_rate(epoch)
            return self._steps([(self.whole, plan.optimiser, True)])
        batches = self._batches(epoch)
        if plan.replay:
            outcome = self._replay(batches)
        else:
            outcome = self._steps((batch, plan.optimiser, False) for batch in batches)
        if int(self.state.position) == self.rows.n_batches(plan.batch_size):
            next(batches, None)  # time was up after the last batch, before the pass itself was ended
        return outcome

    def _replay(self, batches: Iterator[Batch]) -> Outcome:
        """A pass in recorded steps; callbacks that ask for every step have it looked at."""
        if self.replay is None:
            self.replay = Replay(self.guard, self.plan.optimiser, self.state)
        replay, damping = self.replay, self.state.damping
        self.state = replay.load(self.state)._replace(damping=damping)
        watched = [c for c in self.callbacks if type(c).step is not Callback.step]
        each = any(c.every_step for c in watched)
        for batch in batches:
            replay.push(batch, self.rate)
            if each or not replay.waiting:
                self._catch_up(replay)
                for callback in watched:
                    callback.step(self)
                if self.late():
                    break
        self._catch_up(replay)
        return self._outcome()

    def _catch_up(self, replay: Replay) -> None:
        """The record of the steps that were launched."""
        self.tally = [old + new for old, new in zip(self.tally, replay.outcome(), strict=True)]
        self.state = self.state._replace(rate=as_scalar(self.rate, self.state.damping))

    def _batches(self, epoch: int) -> Iterator[Batch]:
        assert self.plan.batch_size is not None
        generator = torch.Generator()
        generator.set_state(self.state.generator)
        done = int(self.state.position)  # more than none only after a resume
        count = self.rows.n_batches(self.plan.batch_size)
        for i, batch in enumerate(self.rows.batches(self.plan.batch_size, generator)):
            if i < done:
                continue
            self._set_rate(epoch + i / count)
            self.state = self.state._replace(position=self.state.position + 1)
            yield batch
        order = generator.get_state() if self.plan.reshuffle else self.state.generator
        self.state = self.state._replace(generator=order, position=torch.zeros_like(self.state.position))

    def _steps(self, steps: Any) -> Outcome:
        """Run steps, each again after a repair."""
        for batch, optimiser, full in steps:
            info = None
            while info is None:
                self.state, info = self.guard.advance(self.state, batch, optimiser, full)
            news = float(info.objective), float(info.evidence), int(info.skipped), 1
            self.tally = [old + new for old, new in zip(self.tally, news, strict=True)]
            for callback in self.callbacks if optimiser is not None else ():
                callback.step(self)
            if self.late():
                break
        return self._outcome()

    def _outcome(self) -> Outcome:
        objective, evidence, skipped, count = self.tally
        self.tally = [0.0, 0.0, 0, 0]
        return Outcome(objective / count, evidence / count, int(skipped))

    def sweep(self, tol: float, most: int, last: float = math.inf) -> list[Outcome]:
        """Full sweeps of the sites at fixed hyper-parameters until log Z_q per row moves by less than `tol`, or time is up.

        `last`: the objective before. What each sweep found is that of the state which it was given.
        """
        found: list[Outcome] = []
        with self._still():
            while len(found) < most and not self.late():
                repairs = self.guard.repairs
                found.append(self._steps([(self.whole, None, True)]))
                # back at a state that was judged before: no sign of rest
                mended = self.guard.repairs > repairs
                if abs(found[-1].objective - last) <= tol * self.total and not mended:
                    break
                last = found[-1].objective
        return found

    @contextmanager
    def _still(self) -> Iterator[None]:
        """Steps in here leave the hyper-parameters alone."""
        own = self.guard.engine
        self.guard.engine = own.still(self.state, self.rows)
        try:
            yield
        finally:
            self.guard.engine = own

    def _settle_sites(self) -> None:
        """After training: sites and sums at the final hyper-parameters, so that q is EP's and not a running average.

        One sweep is made whatever the time; a leap, which overshoots where q is far from its place, never without it.
        """
        plan, start = self.plan, time.perf_counter()
        mini = plan.batch_size is not None
        if mini and not self.late():
            self._set_damping(1.0 if plan.leap else plan.sweep_damping)
            self.settling.append(self._steps([(self.whole, None, True)]))
        if mini:
            self._set_damping(plan.sweep_damping)
        self.settling.append(self._steps([(self.whole, None, True)]))
        most = FINAL_SWEEPS if mini else 10 * FINAL_SWEEPS
        self.settling += self.sweep(0.1 * plan.tol, most - 1, self.settling[-1].objective)
        self.history[-1]["settling_sweeps"] = len(self.settling)
        self.history[-1]["settling_seconds"] = time.perf_counter() - start

    def evidence(self) -> float:
        """log Z_q of the state as it stands; where time is up, of the state that the last sweep was given."""
        if self.settling and self.late():
            return self.settling[-1].evidence
        _, info = self.engine.step(self.state, self.whole, self.reduce, None, True)
        return float(info.evidence)

    def _set_damping(self, damping: float) -> None:
        self.state = self.state._replace(damping=as_scalar(damping, self.state.damping))

    def _set_rate(self, progress: float) -> None:
        plan = self.plan
        share = progress / max(1, plan.max_epochs)
        self.rate = plan.rate * (plan.final_rate / plan.rate) ** share
        if not plan.replay:
            self.state = self.state._replace(rate=as_scalar(self.rate, self.state.rate))

    def _settled(self) -> bool:
        """Fixed hyper-parameters: the last sweep moved little. Learning: ten epochs are hardly better than the ten before.

        log Z_q is stationary in the sites, so it settles long before q does: q's own move is asked for its square root.
        """
        plan, values = self.plan, [row["objective"] for row in self.history]
        if not plan.learn:
            still = len(values) > 1 and abs(values[-1] - values[-2]) < plan.tol * self.total
            return bool(still and self.moved < STILL * math.sqrt(plan.tol))
        # while a running average fills up, the objective of its first passes means little
        least = WINDOW + 1 if plan.batch_size is None else 3 * WINDOW
        if len(values) < least or plan.tol == 0:
            return False
        before, now = values[-2 * WINDOW : -WINDOW], values[-WINDOW:]
        if plan.batch_size is None:
            # the first sweeps can overshoot: no better than before, and not climbing now either
            gain = max(max(now) - max(before), now[-1] - now[-1 - WINDOW // 2])
            return bool(gain < plan.tol * self.total)
        return mean_gain(before, now) < plan.tol * self.total

    def late(self) -> bool:
        """Whether `max_seconds` have passed, on any rank."""
        limit = self.plan.max_seconds
        return limit is not None and self.reduce.agree(time.perf_counter() - self.started > limit)

    def record(self, outcome: Outcome) -> None:
        """Add an epoch to the history, and ask whether it was the last."""
        row = {
            "epoch": len(self.history) + 1,
            "objective": outcome.objective,
            "log_evidence": outcome.evidence,
            "seconds": time.perf_counter() - self.started,
            "repairs": self.guard.repairs - sum(r["repairs"] for r in self.history),
            "skipped": outcome.skipped,
            "learning_rate": float(self.state.rate) * self.guard.caution if self.plan.learn else 0.0,
            "damping": float(self.state.damping) * self.guard.caution,
        }
        self.history.append(row)
        self.state = self.state._replace(epoch=self.state.epoch + 1)
        self.converged = self._settled()
        for callback in self.callbacks:  # a checkpoint is the last of them, and knows what the others said
            self.converged = bool(callback.epoch(self, row)) or self.converged
            _plain(row, callback)
        self.plan.report(row)
        self.converged = self.reduce.agree(self.converged)


def _plain(row: dict[str, Any], callback: Callback) -> None:
    """What a callback added, as model files and checkpoints keep it."""
    for name, value in row.items():
        if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
            row[name] = value = value.item()
        if not isinstance(name, str) or not (value is None or isinstance(value, str | int | float)):
            raise BadInput(
                f"{type(callback).__name__} added {name!r}: {value!r:.60} to a row of the history, which holds numbers and text by "
                "name: add one of these, or keep it in the callback."
            )


def mean_gain(before: list[float], now: list[float]) -> float:
    """How much better the mean of noisy epochs may be: the difference plus two standard errors."""
    error = math.sqrt(statistics.variance(before) / len(before) + statistics.variance(now) / len(now))
    return statistics.fmean(now) - statistics.fmean(before) + 2 * error
