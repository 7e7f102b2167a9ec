"""What the engine asks of an optimiser; the rules themselves live in `cavity.training.optimisers`."""

from __future__ import annotations

from torch import Tensor

Slots = tuple[Tensor, ...]  # the state of an optimiser


class Optimiser:
    """What the engine asks of an optimiser: pure `init` and `step` (ascent)."""

    def init(self, theta: Tensor) -> Slots:
        """Return the optimiser's state before its first step."""
        raise NotImplementedError

    def step(self, state: Slots, theta: Tensor, gradient: Tensor, rate: Tensor) -> tuple[Tensor, Slots]:
        """Return the parameters and the optimiser's state after a step up the gradient."""
        raise NotImplementedError
