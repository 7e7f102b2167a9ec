"""A job: one fit, all of it decided before it runs."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

Key = tuple[str, int, str, str, float, str]


@dataclass(frozen=True)
class Job:
    """What is fitted to what. `options` are GPClassifier's arguments beyond the method's own."""

    kind: str  # which function of `fits` runs it
    dataset: str
    split: int  # which split, and the seed of the fit
    method: str
    inducing: str  # "10%", "200", or "" for the default
    flip: float = 0.0  # share of the training labels that is redrawn
    options: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def n_inducing(self) -> int | float | None:
        """The argument `n_inducing`; None for the default."""
        if not self.inducing:
            return None
        return float(self.inducing[:-1]) / 100 if self.inducing.endswith("%") else int(self.inducing)

    @property
    def settings(self) -> str:
        """A fingerprint of everything that was decided but the split: rows of other settings do not count as this job."""
        parts = [self.kind, self.dataset, self.method, self.inducing, self.flip, sorted(self.options.items())]
        return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:10]

    @property
    def key(self) -> Key:
        """What a row must have to be this job's."""
        return (self.dataset, self.split, self.method, self.inducing, float(self.flip), self.settings)

    def __str__(self) -> str:
        size = f" M={self.inducing}" if self.inducing else ""
        return f"{self.dataset} split {self.split} {self.method}{size}"
