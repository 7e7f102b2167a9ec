"""Ranks of a distributed run that are stopped or killed, or were given other rows or
arguments than the others.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np

from .children import Child, End
from .counting import Outcome, Tally, broken, refused, silent
from .fits import make_rows

MOST_SECONDS = 60.0  # within which every other rank ends
TIMEOUT = {
    "stop": 4.0,
    "kill": 300.0,
}  # of one communication; connections of a killed rank are closed


def run_rank(
    rank: int, world: int, port: int, how: str, who: int, step: int
) -> tuple[str, float]:
    """Fit as one of several ranks; rank `who` does something else.

    Return the error, and the seconds until it.
    """
    from cavity import CavityError, GPClassifier, distributed
    from cavity.callbacks import Callback
    from cavity.fitting.options import nest

    class Fall(Callback):
        steps = 0

        def step(self, run: Any) -> None:
            self.steps += 1
            if self.steps == step and rank == who:
                os.kill(
                    os.getpid(), signal.SIGSTOP if how == "stop" else signal.SIGKILL
                )

    os.environ |= dict(
        RANK=str(rank),
        WORLD_SIZE=str(world),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    falls = how in TIMEOUT
    distributed.join("gloo", timeout=TIMEOUT.get(how, MOST_SECONDS))
    X, y = make_rows(60)
    options = dict(
        method="sep",
        n_inducing=4,
        batch_size=20,
        random_state=0,
        device="cpu",
        max_epochs=50,
        tol=0.0,
    )
    if rank == who and not falls:
        X, y, options = disagree(how, X, y, options)
    begun = time.monotonic()
    try:
        GPClassifier(**nest(**options, callbacks=[Fall()] if falls else [])).fit(X, y)
        return "", time.monotonic() - begun
    except CavityError as error:
        return f"{type(error).__name__}: {error}", time.monotonic() - begun


QUARRELS = ("row", "label", "argument", "rows", "columns")


def disagree(how: str, X: Any, y: Any, options: Any) -> Any:
    """Change one thing."""
    X, y, options = X.copy(), y.copy(), dict(options)
    if how == "row":
        X[-1, -1] = np.nextafter(X[-1, -1], 9)
    elif how == "label":
        y[-1] = (y[-1] + 1) % 3
    elif how == "argument":
        options["n_inducing"] += 1
    elif how == "rows":
        X, y = X[:-1], y[:-1]
    else:
        X = X[:, :1]
    return X, y, options


def run_ranks(world: int, how: str, who: int, step: int) -> dict[int, End]:
    """Return how each rank ended, except one that fell silent."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [
        Child(run_rank, rank, world, port, how, who, step) for rank in range(world)
    ]
    falls = how in TIMEOUT
    try:
        return {i: rank.wait() for i, rank in enumerate(ranks) if not falls or i != who}
    finally:
        for rank in ranks:
            if rank.process.is_alive():
                rank.kill()


def judge(ends: dict[int, End], words: str) -> Outcome:
    for rank, end in ends.items():
        if end.kind != "value":
            return broken(f"rank {rank}: {end}")
        text, seconds = end.value
        if not text:
            return silent(f"rank {rank} fitted a model")
        if words not in text or seconds > MOST_SECONDS:
            return broken(f"rank {rank} after {seconds:.1f} s: {text}")
    return refused(words)


def count_silent_ranks(n: int, rng: np.random.Generator, folder: Path) -> Tally:
    """A rank is stopped (SIGSTOP) or killed at a random step: every other rank ends
    within a minute.
    """
    tally = Tally()
    for i in range(n):
        world = int(rng.integers(2, 4))
        who = int(rng.integers(world))
        ends = run_ranks(world, ("stop", "kill")[i % 2], who, int(rng.integers(1, 60)))
        tally.add(judge(ends, "LostRank"))
    return tally


def count_disagreeing_ranks(n: int, rng: np.random.Generator, folder: Path) -> Tally:
    """A rank has another row, label or argument: every rank names it before the first
    step.
    """
    tally = Tally()
    for i in range(n):
        world = int(rng.integers(2, 4))
        who = int(rng.integers(world))
        ends = run_ranks(world, QUARRELS[i % len(QUARRELS)], who, 0)
        tally.add(judge(ends, f"rank {who if world > 2 else 1} and rank"))
    return tally
