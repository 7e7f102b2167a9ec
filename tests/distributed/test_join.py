"""The ranks of a restarted run find each other in a store where dead ones left their traces."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import distributed as dist

from cavity.distributed import _agree_on_prefix, join, select_gpu


@pytest.mark.parametrize("world", [1, 2, 5])
def test_ranks_agree_on_a_name_that_no_attempt_before_had(world):
    store = dist.HashStore()
    store.set("cavity/here/1", "a rank that died before anyone answered")
    names = []
    for _ in range(3):
        with ThreadPoolExecutor(world) as pool:
            found = list(pool.map(lambda rank: _agree_on_prefix(store, rank, world), range(world)))
        assert len(set(found)) == 1
        names.append(found[0])
    assert len(set(names)) == 3


def test_alone_there_is_nothing_to_join(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    assert join().world == 1
    assert not dist.is_initialized()


def test_a_rank_takes_the_gpu_that_torchrun_gave_it(monkeypatch):
    taken = []
    monkeypatch.setenv("LOCAL_RANK", "5")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: taken[-1])
    assert select_gpu() == torch.device("cuda", 1) and taken == [1]
