"""How a run trains: every setting of the loop, with a default."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cavity.inference import Engine, Optimiser
from cavity.training.optimisers import Adam

Report = Callable[[dict[str, Any]], None]

# While q is near the prior, gradients say little, and Adam would make full steps of them.
WARM_UP, LEAST_RISE = (
    0.05,
    0.1,
)  # share of a run in which an annealed rate rises, and the share it begins with


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """How to train. Give only the settings that differ from the defaults."""

    learn: bool = True  # step the hyper-parameters; otherwise only sweep the sites
    schedule: str = "inner-approx"  # inner-approx, inner-exact, outer
    optimiser: Optimiser = field(default_factory=Adam)
    rate: float = 0.01
    final_rate: float | None = None  # reached at max_epochs; None keeps the rate
    anneal: bool = (
        False  # the rate rises at first and then falls as a cosine; otherwise it decays exponentially
    )
    sweep_damping: float = 1.0  # of full sweeps after mini-batches
    batch_size: int | None = None  # None for full batches
    max_epochs: int = 1
    tol: float = 0.0
    max_seconds: float | None = None
    rough: bool = False  # L-BFGS with roughly converged sites at each point, and fully converged ones last
    settle: bool = True  # False: the sites of a rough plan stay as they are at the end
    leap: bool = True  # after mini-batches, one full sweep may replace all sites at once
    warm_up: Engine | None = None  # finds the first q if the run's own engine has poor optima near the prior
    exchange: int | str = 1  # steps that ranks take alone before they share them, or "auto"; 1: a sum in each
    replay: bool = False  # record mini-batch steps and replay them
    report: Report = lambda row: None  # called with each row of the history

    def rate_at(self, progress: float) -> float:
        """Return the learning rate after `progress` epochs."""
        if self.final_rate is None:
            return self.rate
        share = progress / max(1, self.max_epochs)
        if self.anneal:
            rise = min(1.0, LEAST_RISE + share / WARM_UP)
            return rise * (
                self.final_rate + (self.rate - self.final_rate) * 0.5 * (1 + math.cos(math.pi * share))
            )
        return float(self.rate * (self.final_rate / self.rate) ** share)
