"""From marginals to sites and back: one engine for every method."""

from cavity.inference.engine import Engine, HyperPrior, Optimiser, Totals
from cavity.inference.sites import Own, Tied
from cavity.inference.state import Info, Sites, State, empty_sites

__all__ = [
    "Engine",
    "HyperPrior",
    "Info",
    "Optimiser",
    "Own",
    "Sites",
    "State",
    "Tied",
    "Totals",
    "empty_sites",
]
