"""Progress of a fit: its stages, and bars with the objective and the time left."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

log = logging.getLogger("cavity")
stages = logging.getLogger("cavity.stages")


def announce(text: str, verbose: int) -> None:
    """Say which stage of a fit begins: to the log, and to stderr if `verbose`."""
    stages.info(text)
    if verbose:
        import sys

        from tqdm.auto import tqdm

        tqdm.write(text, file=sys.stderr)


@contextmanager
def forward_stages(say: Callable[[str], None]) -> Iterator[None]:
    """Hand the stages of fits within the block to a function."""
    handler = logging.Handler()
    level = stages.level
    handler.emit = lambda record: say(record.getMessage())  # type: ignore[method-assign]
    stages.addHandler(handler)
    stages.setLevel(logging.INFO)
    try:
        yield
    finally:
        stages.removeHandler(handler)
        stages.setLevel(level)


@contextmanager
def without_stages() -> Iterator[None]:
    """Keep the stages of fits within the block to themselves."""
    before = stages.disabled
    stages.disabled = True
    try:
        yield
    finally:
        stages.disabled = before


def make_reporter(
    verbose: int, epochs: int, total: float
) -> Callable[[dict[str, Any]], None]:
    """Return a function to call with each row of the history.

    It logs the row, and shows a bar if `verbose`.
    """

    def quiet(row: dict[str, Any]) -> None:
        log.debug("epoch %d: objective %.6g", row["epoch"], row["objective"])

    if not verbose:
        return quiet

    bar = make_bar(verbose, total=epochs, unit="epoch", desc="Gaussian process")

    def show(row: dict[str, Any]) -> None:
        quiet(row)
        objective = f"{row['objective'] / total:.4f}"
        rate = f"{row['learning_rate']:.2g}"
        bar.set_postfix(objective=objective, rate=rate, repairs=row["repairs"])
        bar.update()
        if row["epoch"] == epochs:
            bar.close()

    return show


def make_bar(verbose: int, items: Any = None, **about: Any) -> Any:
    """Return a progress bar that yields the items; it stays if `verbose` is above 1."""
    from tqdm.auto import tqdm

    return tqdm(items, leave=verbose > 1, **about)
