"""Which classifiers are pooled with the Gaussian process, and their sizes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class MembersPlan:
    """The members of a pool."""

    pools: bool = False
    linear: bool = False  # class frequencies and logistic regression are members
    networks: int = 0  # number of networks, which differ in their starting values
    network_steps: int = 0  # maximum training steps of each network
    trees: int = 0  # trees of the forest
    rate: float = 0.0  # learning rate of boosting; 0: boosting is not a member
    leaves: int = 0  # maximum leaves per tree of the forest; 0: unlimited
