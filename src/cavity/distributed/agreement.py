"""Ranks compare what they were given, so that all of them raise the same error instead of fitting different models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from cavity.distributed import Local
from cavity.errors import BadInput, CavityError

T = TypeVar("T")


def check_same(reduce: Local, facts: dict[str, Any], error: type[CavityError] = BadInput) -> None:
    """Raise an error on every rank if the ranks differ in a fact; it names the rank and the fact.

    `facts` are small values by name, with equality that is that of their `repr`.
    """
    if reduce.world == 1:
        return
    everyone = reduce.gather(
        {n: value if isinstance(value, str) else repr(value) for n, value in facts.items()}
    )
    for name in dict.fromkeys(name for found in everyone for name in found):
        values = [found.get(name, "missing") for found in everyone]
        usual = Counter(values).most_common(1)[0][0]  # of two that differ, that of rank 0
        odd = [rank for rank, value in enumerate(values) if value != usual]
        if odd:
            who = f"rank {odd[0]}" if len(odd) == 1 else f"ranks {', '.join(map(str, odd))}"
            raise error(
                f"{who} and rank {values.index(usual)} differ in {name}: {values[odd[0]]:.100} and {usual:.100}. Start every rank "
                "with the same rows, arguments and versions."
            )


def run_together(reduce: Local, work: Callable[[], T]) -> T:
    """Run a function that does not communicate: if it fails on some ranks, every rank raises an error that names the rank."""
    if reduce.world == 1:
        return work()
    found, problem = None, None
    try:
        found = work()
    except (ValueError, TypeError, OSError) as error:
        problem = error
    problems = reduce.gather(None if problem is None else str(problem))
    if problem is not None:
        raise problem
    for rank, text in enumerate(problems):
        if text is not None:
            raise BadInput(f"rank {rank} failed: {text}")
    return found  # type: ignore[return-value]
