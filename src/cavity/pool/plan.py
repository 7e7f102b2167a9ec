"""Which classifiers are pooled with the Gaussian process, and how large they may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self


class Bid(NamedTuple):
    """What a full fit of a costly member promises, from a quick one."""

    name: str
    seconds: float  # predicted, of the full fit
    gain: float  # predicted, nats per row that the pool gains by it
    accepted: bool
    # what the full fit took and brought, if it was accepted
    took: float | None = None
    brought: float | None = None

    def describe(self) -> tuple[str, str]:
        """Return the decision and what the bid was, in words."""
        decision = "in full" if self.accepted else "only quick"
        promise = f"about {_show(self.seconds)} s for {self.gain:.2g} nats per row"
        if self.took is None or self.brought is None:
            return f"{self.name} {decision}", promise

        kept = f"took {_show(self.took)} s for {self.brought:.2g}"
        return f"{self.name} {decision}", f"{promise}; {kept}"


def _show(seconds: float) -> str:
    if seconds >= 10:
        return f"{seconds:,.0f}"

    return f"{seconds:.2g}"


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
    asks: bool = False  # costly members are first fitted quickly, and bid
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
