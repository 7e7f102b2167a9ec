"""What the engine asks of an optimiser; the rules themselves live in `cavity.training.optimisers`."""

from __future__ import annotations

from torch import Tensor


class Optimiser:
    """What the engine asks of an optimiser: pure `init` and `step` (ascent)."""

    def init(self, theta: Tensor) -> tuple[Tensor, ...]:
        """Return the optimiser's state before its first step."""
        raise NotImplementedError

    def step(
        self, state: tuple[Tensor, ...], theta: Tensor, gradient: Tensor, rate: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the parameters and the optimiser's state after a step up the gradient."""
        raise NotImplementedError
