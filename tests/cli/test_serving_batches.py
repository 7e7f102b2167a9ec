"""Requests share blocks of rows: every request gets its own rows back, small ones pass large ones, and bad ones fail alone."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cavity.cli.serving.batching import Batcher, Full, WaitingRows, take_parts


def double(X, uncertainty):
    return {"probabilities": 2 * X} | ({"total": X[:, 0]} if uncertainty else {})


def rows(first, count):
    return np.arange(first, first + count, dtype=float)[:, None]


@given(st.lists(st.tuples(st.integers(1, 300), st.booleans()), min_size=1, max_size=12), st.integers(8, 100))
def test_everyone_gets_their_own_rows(jobs, block):
    async def ask():
        batcher = Batcher(double, 10**6)
        batcher.block = block
        tables = [rows(1000 * i, n) for i, (n, _) in enumerate(jobs)]
        asked = [batcher.predict(X, u) for X, (_, u) in zip(tables, jobs, strict=True)]
        for X, (_, u), found in zip(tables, jobs, await asyncio.gather(*asked), strict=True):
            np.testing.assert_array_equal(found["probabilities"], 2 * X)
            assert ("total" in found) == u
        assert batcher.waiting == 0
        batcher.close()

    asyncio.run(ask())


@given(st.lists(st.integers(1, 500), min_size=1, max_size=40), st.integers(8, 200))
def test_shares_are_fair(sizes, room):
    """The oldest job has half of the block; of the others, one with rows left has as many as any other, up to one."""

    async def share():
        return [WaitingRows(rows(0, n), False) for n in sizes]

    jobs = asyncio.run(share())
    oldest, served = jobs[0], jobs[: room // 2]
    parts = {id(p.job): len(p.X) for p in take_parts(list(jobs), room)}
    assert set(parts) == set(map(id, served))
    assert sum(parts.values()) == min(room, sum(len(job.X) for job in served))
    assert parts[id(oldest)] >= min(len(oldest.X), room // 2)
    most = max((n for key, n in parts.items() if key != id(oldest)), default=0)
    for job in served:
        assert job.left == 0 or parts[id(job)] >= most - 1


def test_a_small_request_passes_a_large_one():
    order = []

    async def ask():
        batcher = Batcher(double, 10**6)

        async def one(name, X):
            await batcher.predict(X, False)
            order.append(name)

        large = asyncio.ensure_future(one("large", rows(0, 50_000)))
        await asyncio.sleep(0)
        await asyncio.gather(one("small", rows(0, 1)), large)

    asyncio.run(ask())
    assert order == ["small", "large"]


def test_rows_of_waiting_requests_are_predicted_together():
    sizes = []

    def predict(X, uncertainty):
        sizes.append(len(X))
        return double(X, uncertainty)

    async def ask():
        batcher = Batcher(predict, 10**6)
        await asyncio.gather(*(batcher.predict(rows(i, 1), False) for i in range(20)))

    asyncio.run(ask())
    assert len(sizes) <= 2 and sum(sizes) == 20


def test_a_request_that_fails_fails_alone():
    def predict(X, uncertainty):
        if (X < 0).any():
            raise ValueError("a bad row")
        return double(X, uncertainty)

    async def ask():
        batcher = Batcher(predict, 10**6)
        asked = (batcher.predict(X, False) for X in (rows(0, 3), rows(-5, 100), rows(7, 2)))
        return await asyncio.gather(*asked, return_exceptions=True)

    good, bad, other = asyncio.run(ask())
    assert isinstance(bad, ValueError)
    assert len(good["probabilities"]) == 3 and len(other["probabilities"]) == 2


def test_a_full_queue_refuses_and_a_client_that_leaves_makes_room():
    async def ask():
        batcher = Batcher(double, 100)
        first = asyncio.ensure_future(batcher.predict(rows(0, 90), False))
        await asyncio.sleep(0)  # `first` is in the queue, and no block has begun
        with pytest.raises(Full, match="limit is 100") as full:
            await batcher.predict(rows(0, 50), False)
        assert full.value.seconds >= 1
        first.cancel()
        await asyncio.sleep(0)
        assert batcher.waiting == 0
        assert len((await batcher.predict(rows(0, 150), False))["probabilities"]) == 150

    asyncio.run(ask())


@pytest.mark.parametrize("block", [32, 400])
def test_a_large_request_ends_while_small_ones_keep_arriving(block):
    """Equal shares alone gave it a row of a block, or none: 7,000 rows waited for as long as 60 clients went on."""
    blocks = 0

    def predict(X, uncertainty):
        nonlocal blocks
        blocks += 1
        return double(X, uncertainty)

    async def ask():
        batcher = Batcher(predict, 10**6)
        batcher._adapt = lambda rows, seconds: None
        batcher.block = block
        large = asyncio.ensure_future(batcher.predict(rows(0, 3000), False))

        async def ask_again():
            while not large.done():
                await batcher.predict(rows(0, 5), False)

        await asyncio.gather(*(ask_again() for _ in range(80)), asyncio.wait_for(large, 60))

    asyncio.run(ask())
    assert blocks <= 2 * (3000 + 80 * 5) / block + 2


def test_a_request_that_arrives_as_the_last_block_ends_is_answered():
    async def ask(turns):
        batcher = Batcher(double, 10**6)
        for _ in range(40):
            await asyncio.gather(batcher.predict(rows(0, 1), False), batcher.predict(rows(0, 1), True))
            for _ in range(turns):
                await asyncio.sleep(0)
            await asyncio.wait_for(batcher.predict(rows(0, 1), False), 5)

    for turns in range(6):
        asyncio.run(ask(turns))
