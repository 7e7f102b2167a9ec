"""Fits of several ranks that cannot go well, and what each raised."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cavity import CavityError, GPClassifier, GPRegressor
from cavity.fitting import request
from cavity.fitting.options import nest
from support import toy

X, Y = toy(60, 3, seed=2)
QUICK = dict(
    method="sep",
    n_inducing=4,
    max_epochs=2,
    batch_size=20,
    random_state=0,
    device="cpu",
)


def outcome(work):
    try:
        work()
    except CavityError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def with_version(version, work):
    """Run as another version of the package would."""
    own, request.__version__ = request.__version__, version
    try:
        work()
    finally:
        request.__version__ = own


def write(path, X):
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "y": Y}), path)


def differ(folder):
    """The last rank is given something else; all ranks go on after each error.

    Return what each case raised, by its name.
    """
    rank = int(os.environ["RANK"])
    odd = rank == int(os.environ["WORLD_SIZE"]) - 1
    holed = X.copy()
    holed[0, 0] = np.inf
    weight = np.ones(len(Y))
    weight[30] += odd
    write(folder / f"{rank}.parquet", X + odd)
    cases = {
        "nothing": lambda: GPClassifier(**nest(**QUICK)).fit(X, Y),
        "rows": lambda: GPClassifier(**nest(**QUICK)).fit(X + odd, Y[::-1] if odd else Y),
        "one weight": lambda: GPClassifier(**nest(**QUICK)).fit(X, Y, weight),
        "number of rows": lambda: GPClassifier(**nest(**QUICK)).fit(X[odd:], Y[odd:]),
        "features": lambda: GPClassifier(**nest(**QUICK)).fit(X[:, : 2 - odd], Y),
        "labels": lambda: GPClassifier(**nest(**QUICK)).fit(X, Y + odd),
        "argument": lambda: GPClassifier(**nest(**QUICK | {"n_inducing": 4 + odd})).fit(X, Y),
        "version": lambda: with_version("0.0.1" if odd else request.__version__, lambda: GPClassifier(**nest(**QUICK)).fit(X, Y)),
        "method": lambda: GPClassifier(**nest(**QUICK | {"method": "ep" if odd else "sep"})).fit(X, Y),
        "infinite value": lambda: GPClassifier(**nest(**QUICK)).fit(holed if odd else X, Y),
        "targets": lambda: GPRegressor("vi", n_inducing=4, max_epochs=2, random_state=0).fit(X, Y + 0.5 * odd),
        "file": lambda: GPClassifier(**nest(**QUICK)).fit(folder / f"{rank}.parquet", target="y"),
        "missing file": lambda: GPClassifier(**nest(**QUICK)).fit(folder / ("none.parquet" if odd else "0.parquet"), target="y"),
        "batches": lambda: GPClassifier(**nest(**QUICK)).fit([(X + odd, Y)]),
        "nothing again": lambda: GPClassifier(**nest(**QUICK)).fit(X, Y),
    }  # fmt: skip
    return {name: outcome(work) for name, work in cases.items()}
