"""Whether costly members are worth their seconds. [68]"""

from __future__ import annotations

from cavity.fitting.options.configuration import ClassifierConfig
from cavity.fitting.options.plan import JudgingPlan, TableSize
from cavity.fitting.options.time_estimate import estimate_trees
from cavity.pool.plan import MembersPlan
from cavity.pool.seconds import MemberSize

BID_SECONDS = 20.0  # CPU seconds that trees are expected to take: below, they just grow
# nats per row that a second must bring
PRICE = {"fast": 2e-4, "balanced": 5e-5}


def fits_side_by_side(config: ClassifierConfig, limit: float | None) -> bool:
    """Return whether members are fitted on the CPU while a GPU trains.

    A time limit divides the seconds one after the other.
    """
    own = isinstance(config.ensemble, str)
    return config.device.type == "cuda" and limit is None and own


def asks_bids(
    config: ClassifierConfig,
    judging: JudgingPlan,
    members: MembersPlan,
    size: TableSize,
    limit: float | None,
) -> bool:
    """Return whether costly members must bid; with a time limit, the clock decides."""
    if limit is not None or config.ensemble != "auto":
        return False
    if judging.how not in ("part", "eval_set"):
        return False

    rows = MemberSize(size.rows, size.columns, size.classes, size.latent)
    return estimate_trees(members, rows) > BID_SECONDS


def pays(config: ClassifierConfig, gain: float, seconds: float) -> bool:
    """Return whether a gain in nats per row is worth the seconds."""
    return gain >= PRICE[config.effort] * seconds
