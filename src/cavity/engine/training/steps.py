"""How the hyper-parameters are stepped: values that a plan prints and stores."""

from __future__ import annotations

import math
from dataclasses import dataclass

# Share of a run in which an annealed rate rises, and the share of the rate it begins
# with: while q is near the prior, gradients say little, but Adam would take full steps.
WARM_UP = 0.05
LEAST_RISE = 0.1


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The steps of a run, and when they end.

    Give only the settings that differ from the defaults.
    """

    optimizer: str = "adam"
    schedule: str = "inner-approx"  # inner-approx, inner-exact, outer
    # L-BFGS with loosely converged sites at each point, and fully converged ones last
    loose: bool = False
    patience: int = 2  # epochs over which a loose plan has to gain
    rate: float = 0.01
    final_rate: float | None = None  # reached at max_epochs; None keeps the rate
    # the rate rises, then falls as a cosine, and Adam forgets soon; otherwise it decays
    anneal: bool = False
    batch_size: int | None = None  # None: all rows
    max_epochs: int = 1
    sweep_damping: float = 1.0  # of full sweeps after mini-batches
    tol: float = 0.0
    max_seconds: float | None = None

    @property
    def reshuffles(self) -> bool:
        """Whether every pass has batches of its own."""
        return self.optimizer != "sag"

    def rate_at(self, progress: float) -> float:
        if self.final_rate is None:
            return self.rate

        share = progress / max(1, self.max_epochs)
        if self.anneal:
            rise = min(1.0, LEAST_RISE + share / WARM_UP)
            fallen = 0.5 * (1 + math.cos(math.pi * share))
            return rise * (self.final_rate + (self.rate - self.final_rate) * fallen)

        return float(self.rate * (self.final_rate / self.rate) ** share)
