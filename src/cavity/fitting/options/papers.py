"""How the papers train. [decision 24]

A named method trains like this if the user sets a part of its schedule, or if there are
many rows.
"""

from __future__ import annotations

from typing import NamedTuple

from cavity.engine.training.convergence import PROMISED_TOL as PROMISE

POINTS = 100
FULL_BATCH_ROWS = 1000  # at most: above, mini-batches
FULL_BATCH_OPTIMIZERS = ("sign", "lbfgs", "newton", "gradient")
FULL_BATCH_EPOCHS = 500
SWEEPS = 10_000  # where nothing is learnt
# L-BFGS of a named method ends within PROMISE of the optimum that it climbs to: where
# epochs gain a tenth of that per row, and only a hard table needs so many epochs
TOL = 0.1 * PROMISE
LBFGS_EPOCHS = 2000
# of mini-batches: one more step for every 50 rows
STEPS = 600
MOST_STEPS = 2000
ROWS_PER_STEP = 50
BATCHES_PER_PASS = 6
RATE = 0.03


class BatchSteps(NamedTuple):
    """Mini-batch steps: how many, on how many rows each, at which rate."""

    number: int
    rows: int
    rate: float


def count_steps(n_rows: int, batch_rows: tuple[int, int]) -> BatchSteps:
    """Return the mini-batch steps for a table.

    `batch_rows`: half of the fewest rows per batch, and the most.
    """
    least, most = batch_rows
    rows = min(max(2 * least, n_rows // BATCHES_PER_PASS), most)
    return BatchSteps(min(STEPS + n_rows // ROWS_PER_STEP, MOST_STEPS), rows, RATE)
