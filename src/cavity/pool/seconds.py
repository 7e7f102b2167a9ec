"""CPU seconds of the members of a pool, by their size, on one core.

    boosting  5e-5 L + 4e-9 n D log₂ L per tree of L leaves; binning once, 2e-7 n D
    forest    1.5e-4 + 5e-7 n √D per tree
    networks  1e-4 + 4.7e-6 b + 3.3e-8 (100 D + 5000 + 50 C) per step on b rows

n are rows, D columns, C classes. The laws were fitted to times of one core. They were
within 1.4 of twelve timed trees and seven timed networks.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from cavity.pool.boosting import (
    FIRST_TREES,
    LEAST_ROUNDS,
    LEAVES,
    ROWS_PER_ROUND,
    count_leaves,
)
from cavity.pool.network_training import choose_batch

LEAF = 5e-5
CELL = 4e-9  # per row, column and level of a tree
BIN = 2e-7  # per row and column
USUAL_REACH = 8.0  # rounds × rate; held-out rows choose

TREE = 1.5e-4
TREE_ROW = 5e-7  # per row and √columns

STEP = 1e-4
STEP_ROW = 4.7e-6
STEP_WEIGHT = 3.3e-8  # per weight of two networks


class MemberSize(NamedTuple):
    """The table that a member is fitted to."""

    rows: int
    columns: int
    classes: int
    latent: int  # trees per round of boosting

    def count_rounds(self, rate: float) -> int:
        """Return how many rounds boosting usually grows."""
        most = min(2 * FIRST_TREES // self.classes, self.rows // ROWS_PER_ROUND)
        return max(LEAST_ROUNDS, min(round(USUAL_REACH / rate), most))

    def boost(self, rounds: int, most_leaves: int = LEAVES[1]) -> float:
        """Return the seconds of as many rounds of boosting."""
        leaves = count_leaves(self.rows, most_leaves)
        cells = self.rows * self.columns
        tree = LEAF * leaves + CELL * cells * math.log2(leaves)
        return BIN * cells + rounds * self.latent * tree

    def grow(self, trees: int) -> float:
        """Return the seconds of a forest."""
        return trees * (TREE + TREE_ROW * self.rows * math.sqrt(self.columns))

    def train(self, steps: int) -> float:
        """Return the seconds of two networks."""
        weights = 100 * self.columns + 5000 + 50 * self.classes
        batch = choose_batch(self.rows)
        return steps * (STEP + STEP_ROW * batch + STEP_WEIGHT * weights)
