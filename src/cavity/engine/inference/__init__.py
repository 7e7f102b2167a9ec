"""From marginals to sites and back: one engine for all methods."""

from cavity.engine.inference.coupled import Coupled
from cavity.engine.inference.engine import (
    OF_FACTOR,
    Engine,
    find_places,
    name_parameters,
)
from cavity.engine.inference.placement import AtMode, OnF, OnT, Placement
from cavity.engine.inference.sites import Own, SiteStore, Tied
from cavity.engine.inference.state import (
    Factored,
    Info,
    Optimiser,
    Sites,
    State,
    Totals,
    copy_state,
    empty_sites,
)
from cavity.engine.inference.variational import Averaged, Free
