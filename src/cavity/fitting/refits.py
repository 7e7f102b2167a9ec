"""Fit members of the pool again, to all rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cavity.common.progress import announce
from cavity.fitting.fit import ClassifierFit
from cavity.fitting.held_out import Verdict
from cavity.pool.members import Recipe, fit_members
from cavity.pool.pool import Member
from cavity.tables.table import Table


def refit_members(
    fit: ClassifierFit, recipes: Sequence[Recipe], verdict: Verdict
) -> tuple[Member, ...]:
    """Fit the members that count to all rows."""
    weights = verdict.weights[1:]
    used = [recipe for recipe, w in zip(recipes, weights, strict=True) if w]
    if not used or not isinstance(fit.cases, Table):
        return ()

    names = ", ".join(recipe.name for recipe in used)
    announce(f"  pool: {names}", fit.request.verbose)
    members, _ = fit_members(used, fit.cases, None, fit.rows.blocks, lambda: math.inf)
    return tuple(members)
