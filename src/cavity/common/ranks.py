"""What a fit asks of the processes that share it.

A single process runs the same code, with a sum that does nothing.

`engine.processes` has the group of several processes. This module does without torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from cavity.errors import BadInput, CavityError

T = TypeVar("T", bound=tuple[Any, ...])
R = TypeVar("R")


class Local:
    """Single process: every sum over ranks is the value of this rank."""

    rank = 0
    world = 1

    def sum(self, totals: T) -> T:
        """Sum a named tuple of tensors over the ranks."""
        return totals

    def agree(self, flag: bool) -> bool:
        """Return whether the flag is set on any rank: a rank that stops alone would
        leave the others waiting.
        """
        return flag

    def gather(self, value: Any) -> list[Any]:
        """Gather a small Python value from every rank, in order."""
        return [value]

    def in_turn(self, value: Any) -> Iterator[Any]:
        """Receive a Python value from every rank in order, one at a time, to save
        memory if values are large.
        """
        yield value

    def first(self, make: Any) -> Any:
        """Call a function on rank 0 and send its result to every rank."""
        return make()


def shard_range(n_rows: int, rank: int, world: int) -> range:
    """Return the rows of a rank: a contiguous block, so that few row groups are read by
    two ranks.
    """
    low, high = (n_rows * r // world for r in (rank, rank + 1))
    return range(low, high)


def check_same(
    reduce: Local, facts: dict[str, Any], error: type[CavityError] = BadInput
) -> None:
    """Raise an error on every rank if the ranks differ in a fact, by its `repr`; it
    names the rank and the fact.
    """
    if reduce.world == 1:
        return
    everyone = reduce.gather(
        {n: v if isinstance(v, str) else repr(v) for n, v in facts.items()}
    )
    for name in dict.fromkeys(name for found in everyone for name in found):
        values = [found.get(name, "missing") for found in everyone]
        # of two that differ, that of rank 0
        usual = Counter(values).most_common(1)[0][0]
        odd = [rank for rank, value in enumerate(values) if value != usual]
        if odd:
            if len(odd) == 1:
                who = f"rank {odd[0]}"
            else:
                who = f"ranks {', '.join(map(str, odd))}"
            raise error(
                f"{who} and rank {values.index(usual)} differ in {name}: "
                f"{values[odd[0]]:.100} and {usual:.100}. Start every rank "
                "with the same rows, arguments and versions."
            )


def run_together(reduce: Local, work: Callable[[], R]) -> R:
    """Run a function that does not communicate: if it fails on some ranks, every rank
    raises an error that names the rank.
    """
    if reduce.world == 1:
        return work()
    try:
        found = work()
    except (ValueError, TypeError, OSError) as error:
        reduce.gather(str(error))
        raise
    for rank, text in enumerate(reduce.gather(None)):
        if text is not None:
            raise BadInput(f"rank {rank} failed: {text}")
    return found
