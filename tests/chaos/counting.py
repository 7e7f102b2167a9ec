"""Outcomes of runs, and their counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

OUTCOMES = ("survived", "refused", "silent", "broken")
EXAMPLES = 5  # failures that are kept, to print them


class Outcome(NamedTuple):
    """How one run ended."""

    name: str  # one of OUTCOMES
    detail: str = ""


SURVIVED = Outcome("survived")


def refused(detail: object) -> Outcome:
    return Outcome("refused", str(detail))


def silent(detail: object) -> Outcome:
    return Outcome("silent", str(detail))


def broken(detail: object) -> Outcome:
    return Outcome("broken", str(detail))


@dataclass
class Tally:
    """Counts of one kind of fault."""

    survived: int = 0
    refused: int = 0
    silent: int = 0
    broken: int = 0
    examples: list[str] = field(default_factory=list)  # of what must not happen

    def add(self, outcome: Outcome, times: int = 1) -> None:
        setattr(self, outcome.name, getattr(self, outcome.name) + times)
        if outcome.name in ("silent", "broken") and len(self.examples) < EXAMPLES:
            self.examples.append(f"{outcome.name}: {outcome.detail}")

    @property
    def runs(self) -> int:
        return sum(getattr(self, name) for name in OUTCOMES)

    @property
    def failed(self) -> bool:
        return bool(self.silent or self.broken)
