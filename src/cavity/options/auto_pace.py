"""How method="auto" trains a table of known size: by L-BFGS or mini-batches, and at which pace."""

from __future__ import annotations

import math
from typing import NamedTuple

CROWDED_LATENT = 30  # latent functions above which method="auto" plans for many classes
MOST_SITES = (
    1 << 27
)  # of EP with many classes: 2 GB. Above, method="auto" takes SEP, whose memory does not depend on the rows

LBFGS_LATENT = 5  # latent functions from which L-BFGS is for few rows only
LBFGS_ROWS = 1000  # up to which method="auto" takes L-BFGS
# The same with few latent functions, but not with one: on 2,000 rows, mini-batches had the lower NLL for two classes and for six.
LBFGS_ROWS_FEW = 5000
LBFGS_EPOCHS, LBFGS_EPOCHS_MANY = 8, 12  # with fewer latent functions than LBFGS_LATENT, and with more

MOST_BATCH_ROWS = 1000
MOST_STEPS = 2000


class Pace(NamedTuple):
    """How mini-batches train, where the user leaves it to the library."""

    least_rows: int  # of a batch
    parts: int  # batches of a pass, between the least and the most rows of a batch
    least_steps: int  # more with the number of rows
    rate: float  # of Adam

    def batch_rows(self, n_rows: int) -> int:
        """Return the number of rows of a batch."""
        return min(max(self.least_rows, n_rows // self.parts), MOST_BATCH_ROWS)

    def epochs(self, n_rows: int, batch: int) -> int:
        """Return the number of passes over the rows in batches of this size."""
        return max(3, math.ceil(min(MOST_STEPS, self.least_steps + n_rows // 50) * batch / n_rows))


STEADY = Pace(least_rows=200, parts=6, least_steps=600, rate=0.03)
# Half of the rows per step, half of the steps, larger ones: a third of the time. On seven splits of satellite with 2,000 rows the
# NLL changes by -.0010 (standard error .0019). A twentieth of the rows per step is faster, but lost .005 on three of these splits,
# .06 on letter (26 classes), .01 on 4,000 rows of satellite and .005 on phoneme (two classes).
BRISK = Pace(least_rows=100, parts=12, least_steps=260, rate=0.08)
BRISK_LATENT, BRISK_ROWS = range(5, 11), 2000  # latent functions and most rows of it
CROWDED = STEADY._replace(parts=15, rate=0.06)


def is_crowded(n_latent: int) -> bool:
    """Return whether there are so many classes that method="auto" plans for them."""
    return n_latent > CROWDED_LATENT


def is_too_large_for_ep(n_rows: int, n_latent: int) -> bool:
    """Return whether the sites of many classes take too much memory."""
    return is_crowded(n_latent) and 2 * n_rows * n_latent > MOST_SITES


def prefers_lbfgs(n_rows: int, n_latent: int) -> bool:
    """Return whether L-BFGS on all rows is the best choice."""
    few = 1 < n_latent < LBFGS_LATENT
    return n_rows <= (LBFGS_ROWS_FEW if few else LBFGS_ROWS)


def lbfgs_epochs(n_latent: int) -> int:
    """Return the number of epochs of L-BFGS."""
    return LBFGS_EPOCHS if n_latent < LBFGS_LATENT else LBFGS_EPOCHS_MANY


def choose_pace(n_rows: int, n_latent: int, *, recommended: bool, hurries: bool) -> Pace:
    """Return the pace of mini-batches; `hurries`: a shorter training is worth a little evidence."""
    if recommended and is_crowded(n_latent):
        return CROWDED
    return BRISK if hurries and n_latent in BRISK_LATENT and n_rows <= BRISK_ROWS else STEADY
