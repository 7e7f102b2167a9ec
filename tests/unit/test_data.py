"""Batches: every row once a pass, each with its number."""

import pytest
import torch

from cavity.distributed import Local
from cavity.rows.batches.in_memory import Rows


def rows(N=23):
    return Rows(torch.arange(2.0 * N).view(N, 2), torch.arange(N) % 3, torch.arange(N) + 0.5)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("size", [1, 5, 22, 23, 100])
def test_a_pass_meets_every_row_once(size):
    batches = list(rows().batches(size, generator()))
    assert torch.cat([b.index for b in batches]).sort().values.tolist() == list(range(23))
    sizes = [len(b.index) for b in batches]
    assert max(sizes) <= size and max(sizes) - min(sizes) <= 1


def test_rows_travel_with_their_numbers():
    table = rows()
    for batch in table.batches(5, generator()):
        assert torch.equal(batch.X, table.X[batch.index])
        assert torch.equal(batch.y, table.y[batch.index])
        assert torch.equal(batch.weight, table.weight[batch.index])


def test_the_generator_decides_the_order():
    orders = [torch.cat([b.index for b in rows().batches(5, generator(s))]).tolist() for s in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]


def test_the_next_pass_has_another_order():
    g = generator()
    first, second = (torch.cat([b.index for b in rows().batches(5, g)]).tolist() for _ in range(2))
    assert first != second


@pytest.mark.parametrize("size", [1, 4, 22, 23, 1 << 40])
def test_pieces_of_a_batch_are_the_batch(size):
    whole = rows().whole()
    pieces = list(whole.split(size))
    assert all(len(p.index) <= size for p in pieces)
    for joined, part in zip((torch.cat(parts) for parts in zip(*pieces, strict=True)), whole, strict=True):
        assert torch.equal(joined, part)


@pytest.mark.parametrize("world", [2, 5, 40])
def test_ranks_share_every_batch_and_every_row(world):
    table = rows()
    shards = [table.shard(rank, world) for rank in range(world)]
    parts = [list(shard.batches(5, generator())) for shard in shards]
    for batch, *mine in zip(table.batches(5, generator()), *parts, strict=True):
        got = torch.cat([part.index + shard.mine.start for part, shard in zip(mine, shards, strict=True)])
        assert torch.equal(got.sort().values, batch.index.sort().values)
    for shard in shards:
        (whole,) = shard.whole().split(100)
        assert torch.equal(whole.index, torch.arange(shard.n_rows))
        assert torch.equal(whole.X, table.X[shard.mine.start : shard.mine.stop])


def test_one_process_sums_over_itself():
    totals = (torch.tensor(1.0), torch.ones(3))
    assert Local().sum(totals) is totals
