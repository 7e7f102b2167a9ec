"""Signs of life: a silent rank is named by the others, with any backend; one that leaves in order is not."""

import threading
import time

import pytest
from torch import distributed as dist

from cavity.distributed.heartbeat import Heartbeat, announce_end


class Ranks:
    """Heartbeats of several ranks in one process, each with its switch and what it said."""

    def __init__(self, world, store=None):
        self.store = store or dist.HashStore()
        self.on, self.said = [True] * world, [[] for _ in range(world)]
        for rank in range(world):
            beat = Heartbeat(
                self.store, rank, world, lambda rank=rank: self.on[rank], self.said[rank].append, 0.02, 0.5
            )
            beat.start()

    def wait(self, seconds, until=lambda: False):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            time.sleep(0.02)


@pytest.mark.parametrize("silent", [0, 1, 2])
def test_the_others_name_a_silent_rank_once(silent):
    ranks = Ranks(3)
    ranks.wait(0.2)
    ranks.on[silent] = False
    others = [rank for rank in range(3) if rank != silent]
    ranks.wait(20, lambda: all(ranks.said[rank] for rank in others))
    ranks.wait(0.3)
    ranks.on = [False] * 3
    for rank in others:
        (text,) = ranks.said[rank]
        assert text.startswith(f"rank {silent} of 3 has not answered for 0.5 s")
    assert ranks.said[silent] == []


def test_a_rank_that_leaves_in_order_is_not_named():
    ranks = Ranks(2)
    ranks.wait(0.2)
    ranks.on[1] = False
    announce_end(ranks.store, 1)
    ranks.wait(1.5)
    ranks.on[0] = False
    assert ranks.said == [[], []]


class Stuck:
    """A store whose keeper is stopped: it does not answer any more."""

    def __init__(self):
        self.inner, self.open = dist.HashStore(), threading.Event()
        self.open.set()

    def add(self, key, amount):
        self.open.wait(30)
        return self.inner.add(key, amount)


def test_a_store_that_does_not_answer_is_rank_0():
    store = Stuck()
    ranks = Ranks(2, store)
    ranks.wait(0.2)
    store.open.clear()
    begun = time.monotonic()
    announce_end(store, 1)
    assert time.monotonic() - begun < 10  # it gives up
    ranks.wait(20, lambda: ranks.said[1])
    ranks.on = [False] * 2
    store.open.set()
    assert ranks.said[0] == [] and ranks.said[1][0].startswith("rank 0 of 2 has not answered")
