"""What may watch a run, and stop it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cavity.inference import Engine, State, copy_state

if TYPE_CHECKING:
    from cavity.training.loop import Run


class Memory(NamedTuple):
    """What a callback knows of the run so far, for a checkpoint."""

    facts: dict[str, Any]  # JSON
    state: State | None = None


class Callback:
    """Called as a run goes on, on every rank; override what you need. `epoch` returns True to stop, for all ranks."""

    every_step = True  # `step` wants to see each; otherwise, where steps are recorded, one in some tens

    def start(self, run: Run) -> None:
        """Before the first step, or the first after a resume."""

    def step(self, run: Run) -> None:
        """After every step of an epoch."""

    def epoch(self, run: Run, row: dict[str, Any]) -> bool:
        """After every epoch, with its row of the history, to which numbers and text may be added."""
        return False

    def end(self, run: Run) -> None:
        """After the last epoch, before the sites are settled."""

    def memory(self) -> Memory | None:
        """What a resumed run must be told; None where nothing carries over from one epoch to the next."""
        return None

    def recall(self, memory: Memory) -> None:
        """Go on from there, before `start`."""


class JsonLines(Callback):
    """Appends every row of the history to a file as its epoch ends, one JSON object a line; of several ranks the first writes."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def epoch(self, run: Run, row: dict[str, Any]) -> bool:
        if run.reduce.rank == 0:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        return False


class TimeBudget(Callback):
    """Stops at the end of the first epoch after so many seconds; `max_seconds=` also stops within an epoch."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def start(self, run: Run) -> None:
        self.begun = time.monotonic()

    def epoch(self, run: Run, row: dict[str, Any]) -> bool:
        return time.monotonic() - self.begun > self.seconds


class TensorBoard(Callback):
    """Writes every number of the history's rows for TensorBoard, which must be installed."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def start(self, run: Run) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ModuleNotFoundError:
            raise ModuleNotFoundError(
                "callbacks.TensorBoard needs the tensorboard package: pip install tensorboard, or log with JsonLines."
            ) from None
        self._writer = SummaryWriter(str(self.folder))

    def epoch(self, run: Run, row: dict[str, Any]) -> bool:
        for name, value in row.items():
            if name != "epoch" and isinstance(value, int | float):
                self._writer.add_scalar(name, value, row["epoch"])
        return False

    def end(self, run: Run) -> None:
        self._writer.close()


class EarlyStopping(Callback):
    """Stops when `judge(engine, state)` has not fallen for `patience` epochs, and goes back to the best state."""

    def __init__(self, judge: Callable[[Engine, State], float], patience: int, least: float = 1e-4) -> None:
        self.judge, self.patience, self.least = judge, patience, least
        self.best = math.inf
        self.since = 0
        self.state: State | None = None

    def epoch(self, run: Run, row: dict[str, Any]) -> bool:
        row["validation_nll"] = nll = self.judge(run.engine, run.state)
        self.since = 0 if nll < self.best - self.least else self.since + 1
        if nll < self.best:
            self.best, self.state = nll, copy_state(run.state)
        return self.since >= self.patience

    def end(self, run: Run) -> None:
        run.state = run.state if self.state is None else self.state

    def memory(self) -> Memory:
        return Memory({"best": None if self.state is None else self.best, "since": self.since}, self.state)

    def recall(self, memory: Memory) -> None:
        self.state, self.since = memory.state, memory.facts["since"]
        self.best = math.inf if memory.facts["best"] is None else memory.facts["best"]
