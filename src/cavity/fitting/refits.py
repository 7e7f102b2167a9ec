"""Fit members of the pool again, to all rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cavity.common.progress import announce
from cavity.fitting.fit import ClassifierFit
from cavity.fitting.verdict import Verdict
from cavity.pool.members import FittedMember, Recipe, fit_members
from cavity.pool.pool import Member
from cavity.tables.table import Table


def refit_members(
    fit: ClassifierFit, recipes: Sequence[Recipe], verdict: Verdict
) -> tuple[tuple[Member, ...], Verdict]:
    """Fit the members that count to all rows; the verdict counts the seconds."""
    weights = verdict.weights[1:]
    used = [recipe for recipe, w in zip(recipes, weights, strict=True) if w]
    if not used or not isinstance(fit.cases, Table):
        return (), verdict

    names = ", ".join(recipe.name for recipe in used)
    announce(f"  pool: {names}", fit.request.verbose)
    found = fit_members(used, fit.cases, None, fit.rows.blocks)
    seconds = np.zeros(len(verdict.weights))
    seconds[1 + np.flatnonzero(weights)] = [refit.seconds for refit in found]
    scores = verdict.members.add_seconds(seconds.tolist())
    members = tuple(refit.member for refit in found)
    return members, verdict._replace(members=scores)


def drop_weightless(
    members: Sequence[FittedMember], verdict: Verdict
) -> tuple[Member, ...]:
    """Return the members that have a weight."""
    pairs = zip(members, verdict.weights[1:], strict=True)
    return tuple(found.member for found, weight in pairs if weight)
