"""Which classifiers are pooled with the Gaussian process, and how large they may be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class MembersPlan:
    """The members of a pool."""

    pools: bool = False
    linear: bool = False  # class frequencies and logistic regression are members
    networks: int = 0  # number of small networks, which differ in their starting values
    network_steps: int = 0  # most steps of each
    trees: int = 0  # trees of the forest
    rate: float = 0.0  # learning rate of boosting; 0: it is not a member
    leaves: int = 0  # most leaves per tree of the forest; 0: any number
    refits: bool = True  # fit members again to all rows
    why: str = ""  # "given", or the rule

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
