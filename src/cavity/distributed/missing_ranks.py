"""Find the ranks that do not answer, after a communication has failed."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

from torch import distributed as dist

GRACE = 10.0  # seconds that the others have to notice the failure, too


def get_store() -> Any:
    """Return the store of the default group, which outlives the connections; None if there is none."""
    get = getattr(dist.distributed_c10d, "_get_default_store", None)
    with suppress(Exception):
        return None if get is None else get()
    return None


def find_silent(store: Any, rank: int, world: int, seconds: float = GRACE) -> list[int]:
    """Announce this rank in the store and return the ranks that did not announce themselves in time.

    A rank that is stopped, dead or busy does not. If the store itself is silent, rank 0 is named, which keeps it.
    """
    missing = set(range(world)) - {rank}
    answered = threading.Event()

    def ask() -> None:
        until = time.monotonic() + seconds
        with suppress(RuntimeError):
            store.set(f"cavity/lost/{rank}", "1")
            while missing and time.monotonic() < until:
                for other in sorted(missing):
                    if store.check([f"cavity/lost/{other}"]):
                        missing.discard(other)
                    answered.set()
                time.sleep(0.1)

    asking = threading.Thread(target=ask, daemon=True)  # a store whose keeper is stopped never returns
    asking.start()
    asking.join(seconds + 1)
    return sorted(missing) if answered.is_set() else [0]
