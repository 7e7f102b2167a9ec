"""The ranks of a restarted run find each other in a store where dead ones left their
traces.
"""

import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import distributed as dist

from cavity.distributed import join
from cavity.engine.processes import _agree_on_prefix, select_gpu, warn_unjoined
from support import classifier, toy


@pytest.mark.parametrize("world", [1, 2, 5])
def test_ranks_agree_on_a_name_that_no_attempt_before_had(world):
    store = dist.HashStore()
    store.set("cavity/here/1", "a rank that died before anyone answered")
    names = []
    for _ in range(3):
        with ThreadPoolExecutor(world) as pool:
            found = list(
                pool.map(
                    lambda rank: _agree_on_prefix(store, rank, world), range(world)
                )
            )
        assert len(set(found)) == 1
        names.append(found[0])
    assert len(set(names)) == 3


def test_alone_there_is_nothing_to_join(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    assert join().world == 1
    assert not dist.is_initialized()


@pytest.fixture
def fit_under_torchrun(monkeypatch):
    """Fit twice as rank 1 of some processes, and return the warnings about processes."""
    warn_unjoined.cache_clear()

    def fit(world):
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", world)
        X, y = toy(20, 2)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            for _ in range(2):
                classifier(method="ep", n_inducing=3, max_epochs=1).fit(X, y)
        return [str(w.message) for w in found if "process" in str(w.message)]

    yield fit
    warn_unjoined.cache_clear()


def test_a_fit_that_joined_nobody_warns_once(fit_under_torchrun):
    (message,) = fit_under_torchrun("4")
    assert "4 processes" in message and "cavity.distributed.join()" in message


@pytest.mark.parametrize("world", ["1", "", "many"])
def test_a_fit_in_one_process_does_not_warn(fit_under_torchrun, world):
    assert fit_under_torchrun(world) == []


def test_a_rank_takes_the_gpu_that_torchrun_gave_it(monkeypatch):
    taken = []
    monkeypatch.setenv("LOCAL_RANK", "5")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: taken[-1])
    assert select_gpu() == torch.device("cuda", 1) and taken == [1]
