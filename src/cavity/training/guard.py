"""Steps that may fail: go back to the last good state, halve damping and rate, count the repair, continue. [METHOD 10]"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from cavity.distributed import Local
from cavity.errors import NotPositiveDefinite
from cavity.inference import Engine, Info, Optimiser, Sites, State
from cavity.rows.batches.stream import Whole

MOST_IN_A_ROW = 30
MOST_JITTER = 1e-2
RECOVER = 1.02  # factor by which every good step raises a halved rate again


@dataclass
class Guard:
    """Runs steps of the engine and repairs those that fail."""

    engine: Engine
    reduce: Local
    repairs: int = 0
    caution: float = 1.0  # factor on damping and rates
    in_a_row: int = 0
    good: State | None = None  # the last state from which a step succeeded
    undo: list[tuple[Tensor, Sites]] = field(default_factory=list)  # rows written since `good`

    def advance(
        self, state: State, batch: Whole, optimiser: Optimiser | None, full: bool
    ) -> tuple[State, Info | None]:
        """Return the state after a step; or, without info, the state from which to try again."""
        damping, rate, careful = state.damping, state.rate, state
        if self.caution < 1:
            careful = state._replace(damping=damping * self.caution, rate=rate * self.caution)
        tried, info = self.engine.step(careful, batch, self.reduce, optimiser, full)
        if bool(info.failed):
            return self.go_back(state, info.undo), None
        self.good, self.in_a_row = state, 0
        self.undo = [info.undo] if info.undo is not None else []
        self.caution = min(1.0, self.caution * RECOVER)
        return tried._replace(damping=damping, rate=rate), info

    def go_back(self, state: State, undo: tuple[Tensor, Sites] | None) -> State:
        """Return the state from which to try again after a failed step; `undo` holds the old values of the rows it wrote."""
        self.repairs += 1
        self.in_a_row += 1
        self.caution *= 0.5
        for index, rows in ([undo] if undo is not None else []) + self.undo:
            for kept, old in zip(state.sites, rows, strict=True):
                kept[index] = old
        self.undo = []
        origin = state if self.good is None else self.good
        if self.in_a_row > MOST_IN_A_ROW:
            raise factorisation_error(state, self.in_a_row - 1)
        # smaller steps do not help a state that fails itself
        if self.good is None or self.in_a_row > 3:
            origin = origin._replace(jitter=raise_jitter(state))
        # the position in the plan and in the data is not rolled back
        keep = {name: getattr(state, name) for name in ("rate", "damping", "generator", "epoch", "position")}
        return origin._replace(**keep)


JITTER = "jitter (Training(jitter=...); on the command line jitter = ... in the file of --config)"


def raise_jitter(state: State) -> Tensor:
    """Return ten times the jitter, at most a hundredth of the kernel's variance."""
    return (state.jitter * 10).clamp(1e-10, MOST_JITTER)


def factorisation_error(state: State, repairs: int) -> NotPositiveDefinite:
    return NotPositiveDefinite(
        f"k(Z, Z) or the posterior could not be factorised (jitter={float(state.jitter):g}) after {repairs} repairs: "
        f"raise {JITTER}, use float64, or choose inducing points that do not coincide (inducing='kmeans')."
    )


def as_scalar(value: float, like: Tensor) -> Tensor:
    return torch.tensor(value, dtype=torch.float64, device=like.device)
