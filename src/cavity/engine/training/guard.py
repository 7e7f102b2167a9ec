"""Steps that may fail: halve damping and rate, count the repair, try again. [METHOD 10]"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from cavity.common.ranks import Local
from cavity.engine.batches.stream import Whole
from cavity.engine.inference import Engine, Factored, Info, Optimiser, State
from cavity.errors import NotPositiveDefinite

MOST_IN_A_ROW = 30
MOST_HALVINGS = 10  # before the jitter is raised, too
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
    factored: Factored | None = None  # of the last state

    def advance(
        self, state: State, batch: Whole, optimiser: Optimiser | None, full: bool
    ) -> tuple[State, Info | None]:
        """Return the state after a step, and its report.

        After a failure: the state from which to try again, and None.
        """
        damping = state.damping
        rate = state.rate
        careful = state
        if self.caution < 1:
            careful = state._replace(
                damping=damping * self.caution, rate=rate * self.caution
            )

        tried, info = self.engine.step(
            careful, batch, self.reduce, optimiser, full, factored=self.factored
        )
        self.factored = info.factored
        if bool(info.failed):
            return self.repair(state, bool(info.broken)), None

        self.in_a_row = 0
        self.caution = min(1.0, self.caution * RECOVER)
        return tried._replace(damping=damping, rate=rate), info

    def repair(self, state: State, broken: bool) -> State:
        """Return the state from which to try again after a failed step.

        Smaller steps do not help a state that is `broken` itself: its jitter is raised.
        """
        self.repairs += 1
        self.in_a_row += 1
        self.caution *= 0.5
        if self.in_a_row > MOST_IN_A_ROW:
            raise make_factorisation_error(state, self.in_a_row - 1)

        if broken or self.in_a_row > MOST_HALVINGS:
            return state._replace(jitter=raise_jitter(state))

        return state


JITTER = "jitter (Training(jitter=...); on the command line jitter = ... in the file of --config)"


def raise_jitter(state: State) -> Tensor:
    """Return ten times the jitter, at most a hundredth of the kernel's variance."""
    return (state.jitter * 10).clamp(1e-10, MOST_JITTER)


def make_factorisation_error(state: State, repairs: int) -> NotPositiveDefinite:
    return NotPositiveDefinite(
        "k(Z, Z) or the posterior could not be factorised "
        f"(jitter={float(state.jitter):g}) after {repairs} repairs: "
        f"raise {JITTER}, use float64, or choose inducing points that do not coincide "
        "(inducing='kmeans')."
    )
