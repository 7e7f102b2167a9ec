"""Ranks that let each other know that they live, so that a silent one is named soon, with any backend.

NCCL does not raise an error when a rank is silent: it ends the process after the time-out, without a name. Gloo raises an
error, but only after the time-out.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from torch import distributed as dist

EVERY = 5.0  # seconds between two signs of life
SILENT = 30.0  # seconds without one after which a rank is named
GRACE = 10.0  # seconds that the others have to notice a failed communication, too
GONE = -(1 << 60)  # added to the count of a rank that leaves


class Heartbeat:
    """Counts in the ranks' store while `alive()`, and calls `say` with a rank whose count stands still."""

    def __init__(
        self,
        store: Any,
        rank: int,
        world: int,
        alive: Callable[[], bool],
        say: Callable[[str], None],
        every: float = EVERY,
        silent: float = SILENT,
    ) -> None:
        self.store, self.rank, self.world, self.alive, self.say = store, rank, world, alive, say
        self.every, self.silent = every, silent
        self.answered = time.monotonic()  # when the store last answered
        self.heard = dict.fromkeys(set(range(world)) - {rank}, self.answered)

    def start(self) -> None:
        """Count in one thread and judge in another one: a store whose keeper is stopped never answers."""
        for work in (self._beat, self._judge):
            threading.Thread(target=work, daemon=True).start()

    def _beat(self) -> None:
        counts: dict[int, int] = {}
        with suppress(RuntimeError):  # the store was closed
            while self.alive():
                self.store.add(_key(self.rank), 1)
                for other in list(self.heard):
                    count = int(self.store.add(_key(other), 0))
                    if count < 0:
                        del self.heard[other]
                    elif count != counts.get(other):
                        counts[other], self.heard[other] = count, time.monotonic()
                self.answered = time.monotonic()
                time.sleep(self.every)

    def _judge(self) -> None:
        named: set[int] = set()
        while self.alive():
            silent = self._find_silent()
            for rank in sorted(silent - named):
                self.say(
                    f"rank {rank} of {self.world} has not answered for {self.silent:g} s: it was stopped, has died, or its "
                    "machine is overloaded."
                )
            named = silent
            time.sleep(min(1.0, self.every))

    def _find_silent(self) -> set[int]:
        if self.answered < time.monotonic() - self.silent:
            return {0} - {self.rank}  # rank 0 keeps the store
        return {rank for rank, last in self.heard.copy().items() if last < self.answered - self.silent}


def announce_end(store: Any, rank: int) -> None:
    """Say that this rank leaves."""
    _try_for(1.0, lambda: store.add(_key(rank), GONE))


def _try_for(seconds: float, ask: Callable[[], Any]) -> None:
    """Ask the store, and give up after some seconds: one whose keeper is stopped never answers."""

    def work() -> None:
        with suppress(RuntimeError):
            ask()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)


def print_error(text: str) -> None:
    """Print to stderr at once: NCCL may end the process soon."""
    print(f"cavity: {text}", file=sys.stderr, flush=True)


def _key(rank: int) -> str:
    return f"cavity/alive/{rank}"


def get_store() -> Any:
    """Return the store of the default group, which outlives the connections; None if there is none."""
    with suppress(Exception):  # torch does not promise this function
        return dist.distributed_c10d._get_default_store()
    return None


def find_silent(store: Any, rank: int, world: int, seconds: float = GRACE) -> list[int]:
    """Announce this rank in the store and return the ranks that did not announce themselves in time.

    A rank that is stopped, dead or busy does not. If the store itself is silent, rank 0 is named, which keeps it.
    """
    missing = set(range(world)) - {rank}
    answered = threading.Event()

    def ask() -> None:
        until = time.monotonic() + seconds
        store.set(f"cavity/lost/{rank}", "1")
        while missing and time.monotonic() < until:
            for other in sorted(missing):
                if store.check([f"cavity/lost/{other}"]):
                    missing.discard(other)
                answered.set()
            time.sleep(0.1)

    _try_for(seconds + 1, ask)
    return sorted(missing) if answered.is_set() else [0]
