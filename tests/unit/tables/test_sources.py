"""Sources of rows: read once, then every row once per pass in the order of a table in
memory; statistics in that one pass.
"""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import torch

from cavity.common.column_statistics import from_moments, summarize
from cavity.common.prefetch import prefetch
from cavity.common.ranks import Local, shard_range
from cavity.engine.batches.in_memory import RowsInMemory
from cavity.errors import BadInput, BadOption
from cavity.fitting.adapter import load_rows
from cavity.tables.array_sources import Arrays, Batches, StoredRows
from cavity.tables.files.arrow_source import Arrow
from cavity.tables.files.fragments import Fragments
from cavity.tables.pieces import Piece
from cavity.tables.survey import SIZES, Sizes, survey
from support import slow

N = 237
D = 3
rng = np.random.default_rng(0)
X = np.column_stack(
    [np.arange(N), rng.normal(size=(N, D - 1))]
)  # the first column is the row number
Y = np.array(["b", "a", "c"])[rng.integers(3, size=N)]
W = rng.uniform(0.5, 2.0, N)


def arrays(folder):
    return Arrays(X, Y, W)


def table(rows=slice(None)):
    columns = {f"x{j}": X[rows, j] for j in range(D)}
    return pa.table(
        {"x0": columns.pop("x0"), "label": Y[rows], "w": W[rows], **columns}
    )


def parquet_file(folder):
    pq.write_table(table(), folder / "all.parquet", row_group_size=50)
    return Arrow(folder / "all.parquet", "label", "w")


def parquet_folder(folder):
    (folder / "_temporary").mkdir()
    (folder / "_temporary" / "junk.parquet").write_text("not to be read")
    (folder / "README.txt").write_text("nor this")
    for i, start in enumerate(range(0, N, 100)):
        pq.write_table(
            table(slice(start, start + 100)),
            folder / f"part-{i}.parquet",
            row_group_size=33,
        )
    return Arrow(str(folder), "label", "w")


def arrow_folder(folder):
    for i, start in enumerate(range(0, N, 100)):
        feather.write_feather(
            table(slice(start, start + 100)), folder / f"part-{i}.arrow", chunksize=40
        )
    return Arrow(folder, "label", "w")


def arrow_table(folder):
    return Arrow(table(), "label", "w")


def chunks():
    yield from ((X[i : i + 31], Y[i : i + 31], W[i : i + 31]) for i in range(0, N, 31))


def called(folder):
    return Batches(chunks)


def iterated(folder):
    return Batches(
        [
            (torch.tensor(X[:100]), Y[:100], W[:100]),
            (X[100:].tolist(), Y[100:], torch.tensor(W[100:])),
        ]
    )


SOURCES = [
    arrays,
    parquet_file,
    parquet_folder,
    arrow_folder,
    arrow_table,
    called,
    iterated,
]


@pytest.fixture(params=SOURCES, ids=lambda make: make.__name__)
def source(request, tmp_path):
    return request.param(tmp_path)


def equal_factors(classes, total):
    return np.ones(len(classes))


def read(source, reduce=None, sizes=SIZES):
    found, _ = survey(source, 0, reduce or Local(), equal_factors, sizes=sizes)
    return found


def stream(source, dtype=torch.float64, reduce=None):
    return load_rows(read(source, reduce), dtype, torch.device("cpu"))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def list_rows(batches):
    """Return the numbers of all rows, in the order of the batches."""
    return list(chain.from_iterable(batch.index.tolist() for batch in batches))


def assert_rows(batch):
    """Rows travel with their labels, weights and numbers."""
    n = batch.X[:, 0].long().numpy()
    assert np.array_equal(batch.index.numpy(), n)
    assert np.array_equal(batch.X.numpy(), X[n])
    assert np.array_equal(np.array(["a", "b", "c"])[batch.y.numpy()], Y[n])
    assert np.array_equal(batch.weight.numpy(), W[n])


@pytest.mark.parametrize("size", [1, 10, 64, 236, 237, 1000])
def test_a_shuffled_pass_meets_every_row_once(source, size):
    batches = list(stream(source).batches(size, generator()))
    assert sorted(list_rows(batches)) == list(range(N))
    sizes = [len(b.index) for b in batches]
    assert max(sizes) <= size and max(sizes) - min(sizes) <= 1
    for batch in batches:
        assert_rows(batch)


@pytest.mark.parametrize("size", [1, 10, 64, 1 << 40])
def test_the_whole_is_every_row_in_order(source, size):
    pieces = list(stream(source).whole().split(size))
    assert list_rows(pieces) == list(range(N))
    assert all(len(b.index) == size for b in pieces[:-1])
    for batch in pieces:
        assert_rows(batch)


def test_pieces_of_wide_tables_are_shorter(source):
    pieces = stream(source)._replace(piece_bytes=8 * D * 25).split(1000)
    assert [len(piece.index) for piece in pieces] == [25] * 9 + [12]


class Rank(Local):
    """One of several ranks, each in a thread."""

    def __init__(self, rank, meeting, told):
        self.rank = rank
        self.world = len(told)
        self.meeting = meeting
        self.told = told

    def gather(self, value):
        self.told[self.rank] = value
        self.meeting.wait(30)
        found = list(self.told)
        self.meeting.wait(30)
        return found

    def in_turn(self, value):
        return iter(self.gather(value))


def on_ranks(world, work):
    """Return what a function of a rank returns on each."""
    meeting = threading.Barrier(world)
    told = [None] * world
    with ThreadPoolExecutor(world) as pool:
        return list(
            pool.map(lambda rank: work(Rank(rank, meeting, told)), range(world))
        )


@pytest.mark.parametrize("world", [1, 2, 3, slow(300)])
def test_the_ranks_together_have_the_batch_of_one_process(source, world):
    """Of 300 ranks some have a row, others none.

    A rank of a source in sections stores its own rows alone.
    """
    data = stream(source)
    streams = on_ranks(world, lambda rank: stream(source, reduce=rank))
    shards = [
        streams[rank].shard(rank, world)
        for rank in sorted({0, 1, 2, 299} & set(range(world)))
    ]
    mine = chain.from_iterable(shard.mine for shard in shards)
    assert world == 300 or list(mine) == list(range(N))
    parts = [list(shard.batches(20, generator())) for shard in shards]
    for i, batch in enumerate(data.batches(20, generator())):
        for shard, mine in zip(shards, (p[i] for p in parts), strict=True):
            at = (batch.index >= shard.mine.start) & (batch.index < shard.mine.stop)
            assert torch.equal(batch.index[at], mine.index + shard.mine.start)
            assert all(
                torch.equal(a[at], b) for a, b in zip(batch[1:], mine[1:], strict=True)
            )
    for shard in shards:
        pieces = list(shard.whole().split(50))
        assert pieces and list_rows(pieces) == list(range(shard.n_rows))
        assert torch.equal(
            torch.cat([p.X for p in pieces]), torch.tensor(X)[list(shard.mine)]
        )


def test_of_more_ranks_than_rows_some_have_a_row_and_others_none():
    few = Arrays(X[:4], np.array(["a", "b", "a", "b"]))
    streams = on_ranks(6, lambda rank: stream(few, reduce=rank))
    shards = [data.shard(rank, 6) for rank, data in enumerate(streams)]
    assert [shard.n_rows for shard in shards].count(0) == 2
    assert list(chain.from_iterable(shard.mine for shard in shards)) == list(range(4))
    for shard in shards:
        (batch,) = shard.batches(4, generator())
        (piece,) = shard.whole().split(50)
        assert len(batch.index) == len(piece.index) == shard.n_rows


class Counted(Fragments):
    """Says from which row groups how many rows were decoded."""

    def _batches(self, part, size):
        for batch in super()._batches(part, size):
            self.seen[part.rows] = self.seen.get(part.rows, 0) + batch.num_rows
            yield batch


def test_a_rank_decodes_the_row_groups_that_have_its_rows_and_no_others(
    tmp_path, monkeypatch
):
    for i in range(4):  # 8 row groups of 25 rows; of two ranks, each has 4
        pq.write_table(
            table(slice(50 * i, 50 * i + 50)),
            tmp_path / f"{i}.parquet",
            row_group_size=25,
        )
    monkeypatch.setattr("cavity.tables.files.arrow_source.Fragments", Counted)
    source = Arrow(tmp_path, "label", "w")
    counted = source.fragments
    counted.seen = {}
    decoded = []
    for rank in range(2):
        counted.seen = {}
        list(source.section(shard_range(N - 37, rank, 2), 1000))
        decoded.append(counted.seen)
    assert [set(d.values()) for d in decoded] == [{25}, {25}]
    assert [len(d) for d in decoded] == [4, 4] and not decoded[0].keys() & decoded[
        1
    ].keys()


def test_a_rank_takes_its_own_rows_of_an_addressed_source(monkeypatch):
    taken = []
    take = Arrays.take
    shard = stream(Arrays(X, Y, W)).shard(1, 3)
    monkeypatch.setattr(
        Arrays, "take", lambda self, index: taken.extend(index) or take(self, index)
    )
    list(shard.batches(20, generator()))
    assert sorted(taken) == list(shard.mine)


def test_the_order_is_that_of_the_seed_and_of_the_pass(source):
    data = stream(source)
    orders = [
        [b.index.tolist() for b in data.batches(20, generator(seed))]
        for seed in (0, 0, 1)
    ]
    assert orders[0] == orders[1] != orders[2]
    data = stream(source)
    g = generator()
    first, second = ([b.index.tolist() for b in data.batches(20, g)] for _ in range(2))
    assert first != second


def test_rows_come_in_the_order_of_a_table_in_memory(source):
    data = stream(source)
    table = RowsInMemory(
        torch.tensor(X),
        torch.tensor(np.searchsorted(["a", "b", "c"], Y)),
        torch.tensor(W),
    )
    for ours, theirs in zip(
        data.batches(20, generator()), table.batches(20, generator()), strict=True
    ):
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_rows_are_converted_batch_by_batch(source):
    data = stream(source, torch.float32)
    assert {b.X.dtype for b in data.batches(50, generator())} == {torch.float32}
    assert {b.weight.dtype for b in data.whole().split(50)} == {torch.float64}


def test_a_source_is_read_once_and_its_copy_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    calls = []
    data = stream(Batches(lambda: calls.append(1) or chunks()))
    assert not list(tmp_path.iterdir())
    for _ in range(2):
        assert sum(len(b.index) for b in data.batches(20, generator())) == N
    assert calls == [1]


def test_a_full_disk_is_named_with_what_to_do(monkeypatch):
    store = StoredRows()

    def write(data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "_file", SimpleNamespace(write=write))
    with pytest.raises(BadInput, match=r"No space left.*TMPDIR"):
        store.add(np.ones((2, 3)))


# ------------------------------------------------------------------ files
def test_numbers_of_every_kind_become_floats(tmp_path):
    columns = {
        "i": pa.array([1, 2, 3], pa.int8()),
        "f": pa.array([0.5, 1.5, 2.5], pa.float32()),
        "b": [True, False, True],
        "d": pa.array([1, 2, 3]).cast(pa.decimal128(21, 2)),
    }
    pq.write_table(
        pa.table({**columns, "y": pa.array(["p", "q", "p"]).dictionary_encode()}),
        tmp_path / "t.pq",
    )
    (found,) = Arrow(tmp_path / "t.pq", "y").pieces(10)
    assert found.X.tolist() == [[1, 0.5, 1, 1], [2, 1.5, 0, 2], [3, 2.5, 1, 3]]
    assert found.y.tolist() == ["p", "q", "p"]


def rewrite(folder, table):
    pq.write_table(table, folder / "part-1.parquet")


@pytest.mark.parametrize(
    "change, word",
    [
        (lambda d: (d / "part-1.parquet").unlink(), "No such file"),
        (
            lambda d: rewrite(d, table(slice(100, 200)).drop_columns("x1")),
            "cannot be read",
        ),
        (
            lambda d: rewrite(
                d, table(slice(100, 200)).set_column(0, "x0", pa.array(["a"] * 100))
            ),
            "cannot be read",
        ),
        (lambda d: rewrite(d, table(slice(100, 150))), "cannot be read"),
        (lambda d: (d / "part-1.parquet").write_text("broken"), "cannot be read"),
    ],
)
def test_a_file_that_changes_after_it_was_opened_is_named(change, word, tmp_path):
    source = parquet_folder(tmp_path)
    change(tmp_path)
    with pytest.raises(BadInput, match=rf"part-1\.parquet.*{word}"):
        read(source)


def write(folder, **columns):
    pq.write_table(pa.table(columns), folder / "t.parquet")
    return folder / "t.parquet"


@pytest.mark.parametrize(
    "make, word",
    [
        (lambda d: Arrow(d / "none.parquet", "y"), "none.parquet"),
        (lambda d: Arrow(d, "y"), "file that can be read"),
        (lambda d: Arrow(write(d, x=[1.0], y=[1])), "target="),
        (lambda d: Arrow(write(d, x=[1.0], y=[1]), "label"), "'label'.*'x', 'y'"),
        (lambda d: Arrow(write(d, x=[1.0], y=[1]), "y", "w"), "weight='w'"),
        (lambda d: Arrow(write(d, y=[1]), "y"), "no features"),
        (lambda d: Arrow(write(d, x=["red"], z=[1], y=[1]), "y"), "'x'.*string"),
        (
            lambda d: Arrow(
                write(d, x=pa.array(["a"]).dictionary_encode(), y=[1]), "y"
            ),
            "'x'.*dictionary",
        ),
        (lambda d: Arrays(X, Y[:-1]), "per row"),
        (lambda d: Arrays(X[:, 0], Y), "N, D"),
        (lambda d: Arrays(X.astype(str), Y), "numeric"),
        (lambda d: Batches(chunks()), "once"),
        (lambda d: read(Batches([X])), "batch 0.*ndarray"),
        (lambda d: read(Batches([(X, Y, W, W)])), "batch 0.*tuple"),
        (lambda d: read(Batches([(X[:, 0], Y)])), "target per row"),
        (
            lambda d: read(Batches([(np.full((2, 1), "red"), [0, 1])])),
            "batch 0.*numeric",
        ),
        (lambda d: read(Batches([(np.array([[np.nan]]), [0])])), "batch 0.*column 0"),
        (lambda d: read(Fixed()), "no rows"),
    ],
)
def test_what_is_not_a_source_of_rows_is_refused(make, word, tmp_path):
    with pytest.raises((BadInput, BadOption), match=word):
        make(tmp_path)


def test_without_pyarrow_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.dataset", None)
    with pytest.raises(BadOption, match=r"\[arrow\]"):
        Arrow("somewhere.parquet", "y")


# ------------------------------------------------------------------ reading ahead
def test_prefetched_items_are_the_items_and_no_more_is_made_ahead_than_the_queue_holds():
    assert list(prefetch(iter(range(100)))) == list(range(100))
    made = []

    def items():
        for i in range(100):
            made.append(i)
            yield i

    ahead = prefetch(items(), depth=3)
    next(ahead)
    time.sleep(0.2)
    assert len(made) <= 6
    ahead.close()


def test_an_exception_in_the_thread_reaches_the_caller_and_the_thread_ends_with_it():
    def items():
        yield 1
        raise BadInput("the disk is gone")

    ahead = prefetch(items())
    assert next(ahead) == 1
    with pytest.raises(BadInput, match="disk is gone"):
        next(ahead)
    closed = []

    def items():
        try:
            while True:
                yield 0
        finally:
            closed.append(True)

    before = threading.active_count()
    ahead = prefetch(items())
    next(ahead)
    ahead.close()
    assert closed == [True] and threading.active_count() == before


# ------------------------------------------------------------------ one pass of statistics
@pytest.mark.parametrize("limit", [60, 1000])
def test_the_survey_has_exact_counts_and_moments(source, limit):
    factors = np.array([1.0, 0.5, 3.0])
    sizes = Sizes(piece=20, sample=limit)
    found, _ = survey(source, 0, Local(), lambda *_: factors, sizes=sizes)
    weight = W * np.where(Y == "a", 1.0, np.where(Y == "b", 0.5, 3.0))
    assert found.classes.tolist() == ["a", "b", "c"] and found.n_rows == N
    assert (found.lightest, found.heaviest) == (weight.min(), weight.max())
    np.testing.assert_allclose(
        found.class_totals, [weight[Y == name].sum() for name in "abc"], rtol=1e-13
    )
    assert np.array_equal(found.low, X.min(0)) and np.array_equal(found.high, X.max(0))
    if limit > N:  # statistics are those of the sample, which has all rows
        assert found.moments is None
        assert np.array_equal(found.sampled.X, X) and np.array_equal(
            found.sampled.weight, weight
        )
        return
    total, mean, square = found.moments
    known = np.average(X, axis=0, weights=weight)
    np.testing.assert_allclose(total, weight.sum(), rtol=1e-13)
    np.testing.assert_allclose(mean, known, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(square, weight @ (X - known) ** 2, rtol=1e-10)


def test_columns_from_moments_are_the_columns():
    T = np.column_stack([X, np.full(N, 7.0), np.zeros(N), np.r_[np.zeros(N - 1), 1.0]])
    mean = np.average(T, axis=0, weights=W)
    var = np.average((T - mean) ** 2, axis=0, weights=W)
    exact = summarize(T, W, np.random.default_rng(0))
    ours = from_moments(
        T.min(0), T.max(0), mean, np.sqrt(var), T, W, rng=np.random.default_rng(0)
    )
    for found in (ours, exact):  # constant columns have no lengthscale of their own
        np.testing.assert_array_equal(
            found.constant, [False] * X.shape[1] + [True, True, False]
        )
        assert found.group.max() == X.shape[1]
    assert ours.square_reach == pytest.approx(exact.square_reach, rel=1e-12)
    for a, b in zip(ours[:3], exact[:3], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_large_table_is_sampled_fairly_and_every_rare_row_is_in():
    y = (np.arange(50_000) % 100 == 0).astype(int) + 2 * (np.arange(50_000) % 3 == 0)
    numbers = np.arange(50_000.0)[:, None]
    sizes = Sizes(sample=3000)
    found = read(Arrays(numbers, y), sizes=sizes).sampled
    again = read(Arrays(numbers, y), sizes=sizes).sampled
    assert np.array_equal(found.X, again.X) and np.array_equal(
        found.X, np.sort(found.X, axis=0)
    )
    kept = np.bincount(found.y)
    rows = np.bincount(y)
    assert kept.sum() <= 3000
    rare = rows.argsort()[:2]
    assert np.array_equal(kept[rare], rows[rare])  # 167 and 333 rows
    np.testing.assert_allclose(found.class_totals, rows, rtol=1e-12)
    # a uniform sample of the class: its mean row number is that of the class
    for c in range(4):
        own = found.X[found.y == c, 0]
        assert abs(own.mean() - 25_000) < 4 * 50_000 / np.sqrt(12 * len(own))


@pytest.mark.parametrize("limit", [200, 1000, 5000])
@pytest.mark.parametrize("world", [2, 7])
def test_surveys_of_the_ranks_are_together_that_of_one_process(world, limit):
    """Few rows of some classes, one of them the last rank's alone; the sample is the
    same rows.
    """
    sizes = Sizes(piece=77, sample=limit)
    numbers = np.arange(3000)
    y = np.where(numbers > 2950, 9, np.where(numbers % 50 == 0, 0, numbers // 1000 + 1))
    values = np.random.default_rng(1).normal(size=(3000, 2)) * [1.0, 100.0]
    source = Arrays(values, y, numbers % 3 + 0.5)
    alone = read(source, sizes=sizes)
    for joined in on_ranks(world, lambda rank: read(source, rank, sizes)):
        assert np.array_equal(joined.classes, alone.classes)
        for name in ("X", "y", "weight"):
            assert np.array_equal(
                getattr(joined.sampled, name), getattr(alone.sampled, name)
            )
        assert np.array_equal(joined.low, alone.low) and np.array_equal(
            joined.high, alone.high
        )
        assert (joined.lightest, joined.heaviest) == (alone.lightest, alone.heaviest)
        np.testing.assert_allclose(joined.class_totals, alone.class_totals, rtol=1e-12)
        assert (joined.moments is None) == (alone.moments is None) == (limit == 5000)
        for a, b in zip(joined.moments or (), alone.moments or (), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_what_one_rank_refuses_all_refuse_in_its_words():
    spoilt = X.copy()
    spoilt[70, 1] = np.nan  # a row of the first rank

    def refuse(rank):
        with pytest.raises(BadInput) as caught:
            read(Arrays(spoilt, Y), rank)
        return str(caught.value)

    mine, other = on_ranks(2, refuse)
    assert "column 1: 1 missing" in mine and mine in other and "rank 0" in other


class Fixed:
    """Pieces given by hand."""

    names = ("width", "height")

    def __init__(self, *pieces):
        self.given = pieces

    def pieces(self, *how):
        return iter(self.given)


def piece(X=None, y=None, weight=None, start=0):
    X = np.ones((4, 2)) if X is None else X
    y = np.array([0, 1, 0, 1]) if y is None else y
    return Piece(np.arange(start, start + len(X)), X, y, weight, "part-1.parquet")


def spoilt(value, column=1):
    X = np.ones((4, 2))
    X[2, column] = value
    return X


@pytest.mark.parametrize(
    "bad, words",
    [
        (
            piece(spoilt(np.nan)),
            ["'height'", "1 missing or NaN", "part-1.parquet", "rows 0 to 3"],
        ),
        (piece(spoilt(np.inf, 0)), ["'width'", "1 infinite"]),
        (
            piece(y=np.array(["a", None, "b", "a"], dtype=object)),
            ["NaN or None in 1 rows", "part-1.parquet"],
        ),
        (
            piece(y=np.array([1.0, np.nan, 0.0, 1.0])),
            ["NaN or None in 1 rows", "part-1.parquet"],
        ),
        (piece(y=np.array([1.0, 2.5, 0.0, 1.0])), ["continuous", "part-1.parquet"]),
        (piece(weight=np.array([1.0, 0.0, -1.0, 1.0])), ["2 weights", "not positive"]),
        (piece(y=np.array([0, 1])), ["label or target per row"]),
        (piece(np.ones((4, 3)), start=4), ["3 columns", "2 before"]),
    ],
)
def test_bad_pieces_are_named(bad, words):
    with pytest.raises(BadInput) as caught:
        read(Fixed(piece(), bad))
    assert all(word in str(caught.value) for word in words), str(caught.value)
