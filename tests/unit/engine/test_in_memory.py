"""Batches: every row once a pass, each with its number."""

import pytest
import torch

from cavity.engine.batches.in_memory import RowsInMemory


def rows(N=23):
    return RowsInMemory(
        torch.arange(2.0 * N).view(N, 2), torch.arange(N) % 3, torch.arange(N) + 0.5
    )


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("size", [1, 4, 22, 23, 1 << 40])
def test_pieces_of_a_batch_are_the_batch(size):
    whole = rows().whole()
    pieces = list(whole.split(size))
    assert all(len(p.index) <= size for p in pieces)
    for joined, part in zip(
        (torch.cat(parts) for parts in zip(*pieces, strict=True)), whole, strict=True
    ):
        assert torch.equal(joined, part)


@pytest.mark.parametrize("world", [2, 5, 40])
def test_ranks_share_every_batch_and_every_row(world):
    table = rows()
    shards = [table.shard(rank, world) for rank in range(world)]
    parts = [list(shard.batches(5, generator())) for shard in shards]
    for batch, *mine in zip(table.batches(5, generator()), *parts, strict=True):
        got = torch.cat(
            [
                part.index + shard.mine.start
                for part, shard in zip(mine, shards, strict=True)
            ]
        )
        assert torch.equal(got.sort().values, batch.index.sort().values)
    for shard in shards:
        (whole,) = shard.whole().split(100)
        assert torch.equal(whole.index, torch.arange(shard.n_rows))
        assert torch.equal(whole.X, table.X[shard.mine.start : shard.mine.stop])
