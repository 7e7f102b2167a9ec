"""From marginals to sites and back: one engine for every method."""

from cavity.inference.coupled import Coupled
from cavity.inference.engine import Engine, Optimiser, Totals
from cavity.inference.placement import AtMode, OnF, OnT
from cavity.inference.sites import Own, Tied
from cavity.inference.state import Info, Sites, State, copy_state, empty_sites
from cavity.inference.variational import Averaged, Free

__all__ = [
    "AtMode",
    "Averaged",
    "Coupled",
    "Engine",
    "Free",
    "Info",
    "OnF",
    "OnT",
    "Optimiser",
    "Own",
    "Sites",
    "State",
    "Tied",
    "Totals",
    "copy_state",
    "empty_sites",
]
