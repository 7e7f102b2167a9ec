"""Which classifiers are pooled with the Gaussian process, and how large they may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self


class Bid(NamedTuple):
    """What a costly member promises, from a fit to a small part of the rows."""

    name: str
    seconds: float  # predicted, of the fit to all rows
    gain: float  # predicted, nats per row that the pool loses without the member
    accepted: bool

    def describe(self) -> tuple[str, str]:
        """Return the decision and what the bid was, in words."""
        decision = "taken" if self.accepted else "left out"
        seconds = f"{self.seconds:.2g}"
        if self.seconds >= 10:
            seconds = f"{self.seconds:,.0f}"
        promise = f"about {seconds} s for {self.gain:.2g} nats per row"
        return f"{self.name} {decision}", promise


@dataclass(frozen=True, kw_only=True)
class MembersPlan:
    """The members of a pool."""

    pools: bool = False
    linear: bool = False  # class frequencies and logistic regression are members
    networks: int = 0  # number of small networks, which differ in their starting values
    units: tuple[int, int] = (100, 50)  # of their hidden layers
    device: str = "cpu"  # that trains them
    network_steps: int = 0  # most steps of each
    trees: int = 0  # trees of the forest
    rate: float = 0.0  # learning rate of boosting; 0: it is not a member
    leaves: int = 0  # most leaves per tree of the forest; 0: any number
    refits: bool = True  # fit members again to all rows
    why: str = ""  # "given", or the rule
    bids: tuple[Bid, ...] = ()  # of costly members

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Return a stored plan."""
        bids = tuple(Bid(*bid) for bid in value.get("bids", ()))
        units = tuple(value.get("units", cls.units))
        return cls(**{**value, "bids": bids, "units": units})

    def describe(self) -> str:
        """Return the members in words."""
        if not self.pools:
            return "none"
        if not self.linear and not self.trees:
            return "given classifiers"

        found = ["class frequencies"]
        if self.linear:
            found += ["logistic regression", f"{self.networks} networks"]
        if self.rate:
            found.append("boosting")
        if self.trees:
            found.append(f"{self.trees} extra trees")
        return ", ".join(found)
