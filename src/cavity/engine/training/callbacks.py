"""Callbacks: code that follows a run and may stop it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

from cavity.common.ranks import Local
from cavity.engine.inference import Engine, State, copy_state
from cavity.engine.training.guard import Guard
from cavity.engine.training.steps import Steps
from cavity.errors import BadInput


class Running(Protocol):
    """The run as a callback sees it.

    Read anything; replace only `state` and `stopped`.
    """

    engine: Engine
    plan: Steps
    state: State
    reduce: Local  # the process group: `reduce.rank`, `reduce.world`
    guard: Guard
    history: list[dict[str, Any]]  # one row per epoch
    tally: list[float]  # sums over the steps of the current epoch
    converged: bool
    stopped: bool
    started: float  # time.perf_counter() at the start
    callbacks: tuple[Callback, ...]


class Callback:
    """Base class of callbacks. Override the methods that you need.

    The methods are called on every rank of a distributed run. A callback may read
    everything in the run.

    Examples
    --------
    >>> from cavity.callbacks import Callback
    >>> class StopAfter(Callback):
    ...     def __init__(self, epochs):
    ...         self.epochs = epochs
    ...
    ...     def epoch(self, run, row):
    ...         return row["epoch"] >= self.epochs
    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GPClassifier(n_inducing=10, callbacks=[StopAfter(3)], random_state=0).fit(X, y)
    >>> model.n_epochs_
    3
    """

    def start(self, run: Running) -> None:
        """Run before the first step, or before the first step after a resume."""

    def step(self, run: Running) -> None:
        """Run after every step of an epoch.

        On a GPU, steps are recorded and replayed: there, run after some tens of them.
        """

    def epoch(self, run: Running, row: dict[str, Any]) -> bool:
        """Run after every epoch; return True to stop training, on all ranks.

        `row` is the epoch's row of the history. Numbers and text may be added to it.
        """
        return False

    def end(self, run: Running) -> None:
        """Run after the last epoch, before the final sweeps of the sites."""


def check_row(row: dict[str, Any], callback: Callback) -> None:
    """Convert what a callback added to plain numbers and text.

    Model files and checkpoints hold nothing else.
    """
    for name, value in row.items():
        if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
            row[name] = value = value.item()
        if not isinstance(name, str) or not (
            value is None or isinstance(value, str | int | float)
        ):
            raise BadInput(
                f"{type(callback).__name__} added {name!r}: {value!r:.60} to a row of "
                "the history, which holds only numbers and text by name: add one of "
                "these, or keep the value in the callback."
            )


class EarlyStopping(Callback):
    """Stop when a validation loss no longer falls, and return to the best state.

    Training stops after `patience` epochs in which the loss has not fallen by `least`.
    """

    def __init__(
        self,
        judge: Callable[[Engine, State], float],
        patience: int,
        least: float = 1e-4,
    ) -> None:
        self.judge = judge
        self.patience = patience
        self.least = least
        # the smallest loss so far, and epochs since then
        self.best = math.inf
        self.since = 0
        self.state: State | None = None  # with that loss

    def epoch(self, run: Running, row: dict[str, Any]) -> bool:
        """Add the loss to the row as `validation_nll`; return whether to stop."""
        row["validation_nll"] = nll = self.judge(run.engine, run.state)
        self.since += 1
        if nll < self.best - self.least:
            self.since = 0

        if nll < self.best:
            self.best = nll
            self.state = copy_state(run.state)

        return self.since >= self.patience

    def end(self, run: Running) -> None:
        if self.state is not None:
            run.state = self.state
