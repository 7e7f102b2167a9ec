"""Ranks that were given different things say which one differs; a lost rank ends the
others soon.
"""

import pytest

from cavity import BadOption
from cavity.distributed import join
from chaos import ranks
from distributed.quarrels import differ
from distributed.ranks import run_ranks


@pytest.fixture(scope="module")
def quarrels(tmp_path_factory):
    first, second = run_ranks(differ, tmp_path_factory.mktemp("rows"))
    return {name: (text, second[name]) for name, text in first.items()}


DIFFERENCES = {  # the error, and what it says that ranks 1 and 0 differ in
    "rows": "BadInput digest of the rows",
    "one weight": "BadInput digest of the rows",
    "number of rows": "BadInput number of rows: 59 and 60",
    "features": "BadInput number of features: 1 and 2",
    "labels": "BadInput classes",
    "argument": "BadOption n_inducing: 5 and 4",
    "version": "BadOption version of cavity: 0.0.1 and",
    "method": "BadOption method: 'ep' and 'sep'",
    "targets": "BadInput digest of the rows",
    "file": "BadInput rows of the source",
    "batches": "BadInput digest of the rows",
}


def test_ranks_that_differ_say_so_before_the_first_step(quarrels):
    """B3: rank 1 with X + 1 and y[::-1] finished with exit 0, and the models disagreed
    by 0.945.
    """
    for name, expected in DIFFERENCES.items():
        (first, second), (kind, words) = quarrels[name], expected.split(" ", 1)
        assert (
            first == second
            and first.startswith(f"{kind}: rank 1 and rank 0")
            and words in first
        ), name


def test_a_rank_that_cannot_read_its_rows_is_named_on_the_others(quarrels):
    for name, words in (
        ("infinite value", "infin"),
        ("missing file", "does not exist"),
    ):
        first, second = quarrels[name]
        assert (
            first.startswith("BadInput: rank 1 failed: ")
            and words in first
            and words in second
        )


def test_ranks_that_agree_go_on_also_after_a_quarrel(quarrels):
    assert quarrels["nothing"] == quarrels["nothing again"] == ("no error", "no error")


@pytest.mark.parametrize(
    "how, world, lost", [("kill", 2, 1), ("kill", 3, 0), ("stop", 3, 0)]
)
def test_a_lost_rank_ends_the_others_within_a_minute(how, world, lost):
    """A killed one whatever the time-out of join, a stopped one after it.

    Rank 0 keeps the store of the ranks.
    """
    ends = ranks.run_ranks(world, how, lost, 3)
    assert len(ends) == world - 1
    for end in ends.values():
        text, seconds = end.value
        assert text.startswith("LostRank") and "resume=True" in text and seconds < 60


@pytest.mark.parametrize("timeout", [0, -1, "long", True, float("nan"), float("inf")])
def test_a_timeout_is_a_positive_number(timeout):
    with pytest.raises(BadOption, match="timeout="):
        join(timeout=timeout)
