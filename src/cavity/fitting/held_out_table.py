"""Held-out rows as the user sees them: by row of the given table, with labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.types import Floats
from cavity.fitting.fit import ClassifierFit
from cavity.fitting.held_out import HeldOut
from cavity.fitting.verdict import Verdict
from cavity.prediction.estimate import find_wider
from cavity.prediction.held_out_rows import HeldOutRows
from cavity.tables.labelled import LabelledTable
from cavity.tables.pieces import JUDGES
from cavity.tables.table import Streamed, Table

KEPT = 1 << 24  # most features of training rows, and most held-out probabilities


def list_held_out(fit: ClassifierFit, verdict: Verdict) -> HeldOutRows | None:
    """List the rows that judged a model, by rows of the user's table.

    None if there are too many numbers.
    """
    held = verdict.held_out
    if held.log_proba.size > KEPT:
        return None

    return list_plainly(*_find_rows(fit, held, verdict.log_proba), fit.rows.classes)


def list_plainly(
    held: HeldOut, log_proba: Floats, classes: NDArray[Any]
) -> HeldOutRows:
    """List held-out rows with the log-probabilities of the pool."""
    return HeldOutRows(
        rows=held.rows,
        labels=classes[held.y],
        weight=held.weight,
        group=held.unit,
        fold=held.part,
        log_proba=log_proba,
        members=dict(zip(held.names, held.log_proba, strict=True)),
        classes=classes,
        how=held.how,
        of_table=held.of != "eval_set",
        wider=find_wider(held.kind, len(np.unique(held.unit))),
    )


def _find_rows(
    fit: ClassifierFit, held: HeldOut, log_proba: Floats
) -> tuple[HeldOut, Floats]:
    """Return held-out cases as rows of the user's table, where equal ones are apart."""
    cases = fit.cases
    table = fit.rows.table
    if held.of != "cases":
        return held, log_proba
    if isinstance(cases, Streamed):
        assert cases.apart is not None  # leave-one-out judges other sources
        rows = np.flatnonzero(cases.apart.role == JUDGES)
        return held._replace(rows=rows), log_proba
    if cases.place is None or not isinstance(table, Table):
        return held, log_proba

    where = np.full(cases.n_rows, -1)
    where[held.rows] = np.arange(len(held.y))
    place = where[cases.place]
    known = np.flatnonzero(place >= 0)
    place = place[known]
    apart = held._replace(
        log_proba=held.log_proba[:, place],
        y=held.y[place],
        weight=table.weight[known],
        unit=held.unit[place],
        part=held.part[place],
        rows=table.numbers[known],
    )
    return apart, log_proba[place]


def keep_rows(rows: LabelledTable) -> LabelledTable | None:
    """Return rows in memory that later fits can divide, unless they are many."""
    table = rows.table
    if isinstance(table, Table) and table.X.size <= KEPT:
        return rows._replace(held=None)

    return None
