"""From marginals to sites and back: one engine for all methods."""

from cavity.inference.coupled import Coupled
from cavity.inference.engine import OF_FACTOR, Engine, name_parameters
from cavity.inference.placement import AtMode, OnF, OnT, Placement
from cavity.inference.sites import Own, SiteStore, Tied
from cavity.inference.state import Factored, Info, Optimiser, Sites, State, Totals, copy_state, empty_sites
from cavity.inference.variational import Averaged
