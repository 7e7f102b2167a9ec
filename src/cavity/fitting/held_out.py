"""Held-out log-probabilities: rows, and models that did not see them.

`verdict` has what follows from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch

from cavity.common.types import Floats, Ints
from cavity.fitting.cases import number_cases
from cavity.fitting.left_out import (
    LeftOut,
    learns,
    prior_variances,
)
from cavity.fitting.results import draw_rows
from cavity.pool.members import FittedMember
from cavity.prediction.estimate import Origin
from cavity.prediction.member_scores import GAUSSIAN_PROCESS
from cavity.prediction.model import FittedModel, as_array, as_tensor
from cavity.prediction.predict import log_probabilities, predict_latent
from cavity.tables.table import Table

GATE_ROWS = 500  # prior variances are averaged over as many rows
NESTED = 5  # number of parts for nested weights


# the user's table, its cases (equal rows merged), or rows of eval_set
RowsOf = Literal["given", "cases", "eval_set"]


class HeldOut(NamedTuple):
    """Rows with log-probabilities of models that did not see them."""

    log_proba: Floats  # [1 + J, n, C]: of the Gaussian process, and of the members
    y: Ints
    weight: Floats
    unit: Ints  # the same number for rows that belong together
    part: Ints  # parts for nested weights: folds, or random ones
    u: Floats  # [n], variance of f relative to its prior variance: see `Gate`
    rows: Ints  # their numbers in the table `of`
    how: str  # where the rows come from, in words
    kind: Origin  # how far the models know the rows
    names: tuple[str, ...] = (GAUSSIAN_PROCESS,)  # [1 + J], all different
    seconds: tuple[float, ...] = (0.0,)  # [1 + J], of the fits
    left_out: LeftOut | None = None  # the marginals, if sites of rows were removed
    of: RowsOf = "cases"


def predict_rows(
    model: FittedModel,
    members: Sequence[FittedMember],
    held: Table,
    *,
    how: str,
    kind: Origin,
    seconds: float,
    unit: Ints | None = None,
    part: Ints | None = None,
    of: RowsOf = "cases",
) -> HeldOut:
    """Predict rows that the models did not see.

    `seconds`: that the Gaussian process took.
    """
    if unit is None:
        unit = number_cases(held)
    if part is None:
        _, place = np.unique(unit, return_inverse=True)
        shuffled = np.random.default_rng(0).permutation(place.max() + 1)
        part = (shuffled % NESTED)[place.reshape(-1)]

    f = predict_latent(model, as_tensor(held.X))
    logs = [log_probabilities(model, f)]
    logs += [found.member.log_proba(held.X) for found in members]
    return HeldOut(
        log_proba=np.stack(logs),
        y=held.y,
        weight=held.weight,
        unit=unit,
        part=part,
        u=as_array(f.var) @ find_scale(model, held),
        rows=held.numbers,
        how=how,
        kind=kind,
        names=name_apart([found.recipe.name for found in members]),
        seconds=(seconds, *(found.seconds for found in members)),
        of=of,
    )


def name_apart(names: Sequence[str]) -> tuple[str, ...]:
    """Return the Gaussian process and these names; later equal ones get a number."""
    apart = [GAUSSIAN_PROCESS]
    for i, name in enumerate(names):
        earlier = names[:i].count(name)
        apart.append(f"{name} {earlier + 1}" if earlier else name)

    return tuple(apart)


def hold_left_out(
    left_out: LeftOut, model: FittedModel, n_rows: int, of: RowsOf = "given"
) -> HeldOut:
    """Return leave-one-out log-probabilities; `n_rows`: of the table."""
    used = left_out.without_lone_rows().sample()
    n = len(used.y)
    how = "leave-one-out"
    if n < n_rows:
        how = f"leave-one-out of {n} rows"
    unit = used.unit
    if unit is None:
        unit = np.arange(n)
    return HeldOut(
        log_proba=used.log_proba(model)[None],
        y=used.y,
        weight=used.weight,
        unit=unit,
        part=np.zeros(n, dtype=np.int64),
        u=np.ones(n),
        rows=used.rows,
        how=how,
        kind="seen" if learns(model) else "folds",
        left_out=left_out,
        of=of,
    )


def join_folds(found: Sequence[HeldOut], how: str) -> HeldOut:
    """Join the rows of several folds, with the members that all of them have."""
    least = min(len(held.log_proba) for held in found)
    logs = [held.log_proba[:least] for held in found]
    return found[0]._replace(
        log_proba=np.concatenate(logs, axis=1),
        y=np.concatenate([held.y for held in found]),
        weight=np.concatenate([held.weight for held in found]),
        unit=np.concatenate([held.unit for held in found]),
        part=np.concatenate([held.part for held in found]),
        u=np.concatenate([held.u for held in found]),
        rows=np.concatenate([held.rows for held in found]),
        how=how,
        names=found[0].names[:least],
        seconds=tuple(np.sum([held.seconds[:least] for held in found], 0).tolist()),
    )


def drop_members(held: HeldOut, kept: Ints) -> HeldOut:
    """Return the rows with some of the classifiers; `kept`: their places."""
    return held._replace(
        log_proba=held.log_proba[kept],
        names=tuple(held.names[j] for j in kept),
        seconds=tuple(held.seconds[j] for j in kept),
    )


@torch.no_grad()
def find_scale(model: FittedModel, table: Table) -> Floats:
    """Return 1 / (C v⁰) of `Gate`, by prior variances at some rows."""
    known = prior_variances(model, draw_rows(table, GATE_ROWS))
    return 1 / (len(known) * known)
