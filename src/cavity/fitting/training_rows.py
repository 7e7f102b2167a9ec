"""The rows that one Gaussian process is trained on, and the values that it starts from."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.types import Floats
from cavity.engine.training.callbacks import Callback
from cavity.fitting import monitoring
from cavity.fitting.options.configuration import ClassifierConfig
from cavity.fitting.options.plan import TableSize
from cavity.fitting.options.policy.work import count_points, merges_equal_rows
from cavity.fitting.points import choose_points
from cavity.fitting.request import Request
from cavity.tables.labelled import LabelledTable
from cavity.tables.table import Facts, Start, Table, share_lengthscales
from cavity.tables.validation import Features


class TrainingRows(NamedTuple):
    """What one Gaussian process is trained on."""

    seen: Facts  # the rows that it sees
    table: Facts  # the same, equal rows merged
    start: Start  # starting values, which the rows give
    Z: Floats  # [C M D], inducing inputs at the start
    seed: int  # of the run
    n_columns: int
    classes: NDArray[Any] | None = None  # None: real targets
    stopping: tuple[Callback, ...] = ()  # early stopping

    @property
    def size(self) -> TableSize:
        return TableSize.of(self.table, self.n_columns)


def prepare_rows(
    request: Request[ClassifierConfig], rows: LabelledTable, seen: Facts
) -> TrainingRows:
    """Prepare the rows that a classifier sees; rows of eval_set stop it, or held-out ones."""
    config = request.config
    n_columns = rows.features.n
    rng = np.random.default_rng(request.seed)
    held = None
    if request.raw.eval_set is not None:
        held = rows.held
    if isinstance(seen, Table) and config.validation_fraction is not None:
        seen, held = monitoring.hold_out_rows(seen, config.validation_fraction, rng)
    stopping: tuple[Callback, ...] = ()
    if held is not None:
        stopping = (monitoring.make_early_stopping(held, config.patience),)

    table = seen
    if isinstance(seen, Table) and seen.place is None and merges_equal_rows(config):
        table = seen.merge(cells=True)

    start = find_start(request, table, rows.features, rng)
    M = count_points(config, TableSize.of(table, n_columns))
    Z = choose_points(config, start.candidates, M, seen.n_latent, rng)
    return TrainingRows(
        seen=seen,
        table=table,
        start=start,
        Z=Z,
        seed=draw_run_seed(rng),
        n_columns=n_columns,
        classes=rows.classes,
        stopping=stopping,
    )


def find_start(
    request: Request[Any], table: Facts, features: Features, rng: np.random.Generator
) -> Start:
    """Return the starting values; a warm start keeps the units of the old parameters."""
    start = share_lengthscales(table.start(rng), features, rng)
    earlier = request.earlier
    if earlier is not None and len(earlier.columns.center) == features.n:
        start = start._replace(columns=earlier.columns)
    return start


def draw_run_seed(rng: np.random.Generator) -> int:
    """Draw the seed of a run, which orders its batches."""
    return int(rng.integers(2**31 - 1))
