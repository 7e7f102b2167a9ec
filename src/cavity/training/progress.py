"""A progress bar with the objective, the learning rate and the time left."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

log = logging.getLogger("cavity")
T = TypeVar("T")


def make_reporter(verbose: int, epochs: int, total: float) -> Callable[[dict[str, Any]], None]:
    """Return a function to call with each row of the history: it logs the row, and shows a bar if `verbose`."""

    def quiet(row: dict[str, Any]) -> None:
        log.debug("epoch %d: objective %.6g", row["epoch"], row["objective"])

    if not verbose:
        return quiet
    from tqdm.auto import tqdm

    bar = tqdm(total=epochs, unit="epoch", desc="cavity", leave=verbose > 1)

    def show(row: dict[str, Any]) -> None:
        quiet(row)
        bar.set_postfix(
            objective=f"{row['objective'] / total:.4f}",
            rate=f"{row['learning_rate']:.2g}",
            repairs=row["repairs"],
        )
        bar.update()

    return show


def show_progress(items: Sequence[T], unit: str, verbose: int) -> Iterable[T]:
    """Return the items, with a bar that counts them if `verbose`."""
    if not verbose:
        return items
    from tqdm.auto import tqdm

    found: Iterable[T] = tqdm(items, unit=unit, desc="calibration", leave=verbose > 1)
    return found
