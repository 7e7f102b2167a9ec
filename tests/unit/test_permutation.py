"""The order of a long table is a random permutation that is never in memory as a whole."""

import numpy as np
import pytest
import torch

from cavity.rows.batches import in_memory
from cavity.rows.batches.shuffle import Permutation, shard_range


def draw(n, seed=0):
    return Permutation.draw(n, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 64, 65, 1000, 4097])
def test_every_number_has_one_position(n):
    found = draw(n).find(np.arange(n))
    np.testing.assert_array_equal(np.sort(found), np.arange(n))


def test_positions_can_be_asked_in_any_order_also_of_a_very_long_table():
    order, some = draw(10**12), np.array([7, 10**12 - 1, 10**11, 0])
    np.testing.assert_array_equal(order.find(some), [order.find(some[i : i + 1])[0] for i in range(4)])
    assert (order.find(some) < 10**12).all()


def test_orders_look_random():
    """Places, neighbours and second seeds are as those of a shuffle, within five standard deviations."""
    n = 40_000
    first, second = (draw(n, seed).find(np.arange(n)) for seed in (0, 1))
    for a, b in ((first, np.arange(n)), (first[1:], first[:-1]), (first, second)):
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(n)
    cells = np.histogram2d(np.arange(n), first, bins=20)[0]
    chi_squared = ((cells - n / 400) ** 2 / (n / 400)).sum()
    assert abs(chi_squared - 19**2) < 5 * np.sqrt(2 * 19**2)
    moves = np.diff(first)  # of a random order, a third of three neighbours in a row are not monotone
    assert abs(np.mean(moves[1:] * moves[:-1] > 0) - 1 / 3) < 5 / np.sqrt(n)


def test_batches_of_a_long_table_have_the_sizes_of_a_short_one_and_ranks_divide_them(monkeypatch):
    n, size = 1001, 90
    short = list(in_memory.shuffle_rows(n, size, torch.Generator().manual_seed(3)))
    monkeypatch.setattr(in_memory, "LONG", 1000)
    whole = list(in_memory.shuffle_rows(n, size, torch.Generator().manual_seed(3)))
    assert [len(b) for b in whole] == [len(b) for b in short]
    np.testing.assert_array_equal(torch.cat(whole).sort()[0], np.arange(n))
    parts = [
        in_memory.shuffle_rows(n, size, torch.Generator().manual_seed(3), shard_range(n, rank, 3))
        for rank in range(3)
    ]
    for batch, *own in zip(whole, *parts, strict=True):
        np.testing.assert_array_equal(torch.cat(own).sort()[0], batch.sort()[0])
