"""A source whose training ended early is not worse than class frequencies.

No row of a source is held out unless it has groups. A Gaussian process that does not
fit even the rows that it saw is pooled with class frequencies.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cavity.common.types import Floats
from cavity.fitting.fit import ClassifierFit, Judged
from cavity.fitting.held_out import HeldOut, predict_rows
from cavity.fitting.verdict import judge_rows
from cavity.pool.member_rows import MemberRows
from cavity.pool.members import FittedMember, Frequencies
from cavity.pool.sklearn_trees import TreeColumns
from cavity.prediction.model import extract_model
from cavity.tables.table import Streamed, Table

ROWS = 4000  # of the sample, which tell how well the model fits


class _Losses(NamedTuple):
    """Weighted mean log losses on the same rows."""

    model: float
    frequencies: float


def guard_source(fit: ClassifierFit, judged: Judged) -> Judged:
    """Pool the model of a source with class frequencies if it fits worse than they do."""
    cases = fit.cases
    run = judged.begun.run
    if not isinstance(cases, Streamed) or run.converged:
        return judged
    if judged.verdict is not None and judged.verdict.held_out.left_out is None:
        return judged  # rows that were held out have judged it

    rows = cases.sampled.draw(ROWS, fit.request.seed)
    member = fit_frequencies(cases.sampled)
    model = extract_model(run.engine, run.state)
    how = f"{rows.n_rows} training rows"
    found = predict_rows(
        model,
        [member],
        rows,
        how=how,
        kind="seen",
        seconds=judged.begun.seconds,
        of="given",
    )
    losses = _score(found)
    if losses.model <= losses.frequencies:
        return judged

    verdict = judge_rows(found, fit.rows.class_prior)
    members = (member.member,) if verdict.weights[1] else ()
    note = (
        f"training ended after {len(run.history)} epochs with a log loss of "
        f"{losses.model:.3g} on training rows, worse than class frequencies "
        f"({losses.frequencies:.3g}): a temperature or a pool repairs this. Raise time_limit= or "
        "max_epochs=, or lower n_inducing=."
    )
    return judged._replace(
        verdict=verdict, members=members, repaired=True, notes=(*judged.notes, note)
    )


def fit_frequencies(table: Table) -> FittedMember:
    """Fit class frequencies."""
    rows = MemberRows.of(table)
    count = rows.X.shape[1]
    columns = TreeColumns(np.arange(count), np.ones(count))
    member, recipe = Frequencies().fit(rows, columns, None, lambda: math.inf)
    return FittedMember(member, recipe, seconds=0.0)


def _score(held: HeldOut) -> _Losses:
    own: Floats = held.log_proba[:, np.arange(len(held.y)), held.y]
    losses = -np.average(own, axis=1, weights=held.weight)
    return _Losses(*losses.tolist())
