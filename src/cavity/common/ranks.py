"""What a fit needs from the processes that share it.

A single process runs the same code, with a sum that does nothing. `engine.processes`
has the group of several processes. This module does not load torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
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
        """Return whether the flag is set on any rank.

        A rank that stops alone would leave the others waiting.
        """
        return flag

    def gather(self, value: Any) -> list[Any]:
        """Gather a small Python value from every rank, in order."""
        return [value]

    def in_turn(self, value: Any) -> Iterator[Any]:
        """Receive a Python value from every rank in order.

        One at a time saves memory if values are large.
        """
        yield value

    def first(self, make: Any) -> Any:
        """Call a function on rank 0 and send its result to every rank."""
        return make()


def shard_range(n_rows: int, rank: int, world: int) -> range:
    """Return the rows of a rank.

    They are a contiguous block, so that two ranks read few row groups both.
    """
    return range(n_rows * rank // world, n_rows * (rank + 1) // world)


def check_same(
    reduce: Local, facts: dict[str, Any], error: type[CavityError] = BadInput
) -> None:
    """Raise an error on every rank if the ranks differ in a fact, by its `repr`.

    The error names the rank and the fact.
    """
    if reduce.world == 1:
        return

    own = {n: v if isinstance(v, str) else repr(v) for n, v in facts.items()}
    everyone = reduce.gather(own)
    for name in dict.fromkeys(chain.from_iterable(everyone)):
        values = [found.get(name, "missing") for found in everyone]
        # the value of rank 0 if two ranks differ
        usual = max(values, key=values.count)
        odd = [rank for rank, value in enumerate(values) if value != usual]
        if odd:
            ranks = ", ".join(map(str, odd))
            raise error(
                f"rank{'s' if len(odd) > 1 else ''} {ranks} and rank "
                f"{values.index(usual)} differ in {name}: "
                f"{values[odd[0]]:.100} and {usual:.100}. Start every rank "
                "with the same rows, arguments and versions."
            )


def run_together(reduce: Local, work: Callable[[], R]) -> R:
    """Run a function that does not communicate.

    If it fails on some ranks, every rank raises an error that names the rank.
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
