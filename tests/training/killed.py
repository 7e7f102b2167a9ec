"""A fit that another process kills."""

import time
from pathlib import Path

import numpy as np

from cavity import GPClassifier
from cavity.callbacks import Callback
from cavity.fitting.options import nest


class Slow(Callback):
    def step(self, run):
        time.sleep(0.05)


def fit_slowly(where: Path, path: Path, options: dict) -> None:
    """Fit to the rows of a file or folder, and write a checkpoint after every step."""
    options = options | dict(checkpoint=path, checkpoint_every=0, callbacks=[Slow()])
    data = dict(X=where, target="label") if where.is_dir() else dict(np.load(where))
    GPClassifier(**nest(**options)).fit(**data)
