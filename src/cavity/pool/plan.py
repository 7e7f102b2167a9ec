"""Which classifiers are pooled with the Gaussian process, and how much work each of
them may take.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class MembersPlan:
    """The members of a pool."""

    pools: bool = False
    linear: bool = False  # class frequencies and logistic regression are members
    networks: int = 0  # small ones that differ in their starting values
    network_steps: int = 0  # of each, at most
    trees: int = 0  # of the forest
    rate: float = 0.0  # of boosting; 0: it is not a member
    leaves: int = 0  # most of a tree of the forest; 0: any number
