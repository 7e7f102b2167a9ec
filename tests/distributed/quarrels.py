"""Fits of several ranks that cannot go well, and what each raised.

python quarrels.py (stop | kill | busy | beat) RANK: one of the ranks falls silent; the others print what they raise as JSON
"""

import json
import os
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from cavity import CavityError, GPClassifier, GPRegressor, distributed
from cavity.callbacks import Callback
from cavity.distributed import heartbeat
from cavity.fitting import job
from cavity.options import nest
from support import toy

X, Y = toy(60, 3, seed=2)
QUICK = dict(method="sep", n_inducing=4, max_epochs=2, batch_size=20, random_state=0, device="cpu")


def outcome(name, work):
    begun = time.monotonic()
    try:
        work()
        found = "no error"
    except CavityError as error:
        found = f"{type(error).__name__}: {error}"
    return name, found, time.monotonic() - begun


def with_version(version, work):
    """Run as another version of the package would."""
    own, job.__version__ = job.__version__, version
    try:
        work()
    finally:
        job.__version__ = own


def differ(folder):
    """The last rank is given something else; all ranks go on after each error. Return what each case raised, by its name."""
    rank = int(os.environ["RANK"])
    odd = rank == int(os.environ["WORLD_SIZE"]) - 1
    holed = X.copy()
    holed[0, 0] = np.nan
    weight = np.ones(len(Y))
    weight[30] += odd
    np.save(folder / f"X{rank}.npy", X + odd), np.save(folder / "y.npy", Y)
    cases = {
        "nothing": lambda: GPClassifier(**nest(**QUICK)).fit(X, Y),
        "rows": lambda: GPClassifier(**nest(**QUICK)).fit(X + odd, Y[::-1] if odd else Y),
        "one weight": lambda: GPClassifier(**nest(**QUICK)).fit(X, Y, weight),
        "number of rows": lambda: GPClassifier(**nest(**QUICK)).fit(X[odd:], Y[odd:]),
        "features": lambda: GPClassifier(**nest(**QUICK)).fit(X[:, : 2 - odd], Y),
        "labels": lambda: GPClassifier(**nest(**QUICK)).fit(X, Y + odd),
        "argument": lambda: GPClassifier(**nest(**QUICK | {"n_inducing": 4 + odd})).fit(X, Y),
        "version": lambda: with_version("0.0.1" if odd else job.__version__, lambda: GPClassifier(**nest(**QUICK)).fit(X, Y)),
        "method": lambda: GPClassifier(**nest(**QUICK | {"method": "ep" if odd else "sep"})).fit(X, Y),
        "missing value": lambda: GPClassifier(**nest(**QUICK)).fit(holed if odd else X, Y),
        "targets": lambda: GPRegressor("vi", n_inducing=4, max_epochs=2, random_state=0).fit(X, Y + 0.5 * odd),
        "file": lambda: GPClassifier(**nest(**QUICK)).fit(folder / f"X{rank}.npy", folder / "y.npy"),
        "missing file": lambda: GPClassifier(**nest(**QUICK)).fit(folder / ("none.npy" if odd else "X0.npy"), folder / "y.npy"),
        "batches": lambda: GPClassifier(**nest(**QUICK)).fit([(X + odd, Y)]),
        "nothing again": lambda: GPClassifier(**nest(**QUICK)).fit(X, Y),
    }  # fmt: skip
    return {name: outcome(name, work)[1] for name, work in cases.items()}


class Fall(Callback):
    """One rank falls silent in its third step."""

    def __init__(self, how, rank):
        self.how, self.rank, self.steps = how, rank, 0

    def step(self, run):
        self.steps += 1
        if self.steps != 3 or run.reduce.rank != self.rank:
            return
        print(json.dumps("silent"), flush=True)
        if self.how == "busy":
            time.sleep(600)
        os.kill(os.getpid(), signal.SIGSTOP if self.how == "stop" else signal.SIGKILL)


def report_heartbeat():
    """End this rank with the first thing that its heartbeat says, as one JSON line."""
    begun = time.monotonic()

    def say(text):
        print(json.dumps(["beat", text, time.monotonic() - begun]), flush=True)
        os._exit(0)

    distributed.print_error = say
    heartbeat.Heartbeat.__init__.__defaults__ = (0.5, 5.0)


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    what, more = sys.argv[1:]
    if what == "beat":
        report_heartbeat()
    distributed.join("gloo", timeout=600 if what == "beat" else 4)
    how = "stop" if what == "beat" else what
    options = QUICK | {"max_epochs": 50, "tol": 0.0, "callbacks": [Fall(how, int(more))]}
    print(json.dumps(outcome(what, lambda: GPClassifier(**nest(**options)).fit(X, Y))), flush=True)
    distributed.leave()


if __name__ == "__main__":
    main()
