"""Output and exit codes of the commands.

Text or JSON goes to stdout, progress and errors to stderr.
"""

from __future__ import annotations

import functools
import json
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from warnings import WarningMessage

import typer

from cavity.errors import BadOption, MissingExtra, missing_extra

if TYPE_CHECKING:
    from cavity.tables.arrow_tables import Chunk

Text = str | None

FAILED = 1
USAGE = 2
INTERRUPTED = 130
TERMINATED = 143
EXTRAS = dict.fromkeys(
    ("starlette", "pydantic_core", "uvicorn", "h11", "prometheus_client"), "serve"
)


class Terminated(KeyboardInterrupt):
    """SIGTERM, as an interrupt."""


class Interrupts:
    """Ctrl-C and SIGTERM during a command.

    The first one is raised, or remembered while a trained model is saved. It prints
    what happens next, because that may take some seconds. A second one acts at once.
    Under torchrun nothing changes: torchrun sends SIGTERM when another rank has died,
    and a rank cannot finish a fit alone.
    """

    def __init__(self) -> None:
        self.stopped = 0  # exit code of the interrupt that was remembered
        self.announcement = ""  # printed at the first interrupt
        self._holds = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and "RANK" not in os.environ:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def hold(self) -> None:
        """From now on, remember an interrupt instead of raising it."""
        self._holds = True

    def _handle(self, number: int, frame: Any) -> None:
        again: Any = signal.SIG_DFL
        stop: KeyboardInterrupt = Terminated()
        if number == signal.SIGINT:
            again = signal.default_int_handler
            stop = KeyboardInterrupt()
        signal.signal(number, again)
        if self.announcement:
            with suppress(RuntimeError):  # if the signal came while a line was printed
                typer.echo(self.announcement, err=True)
        if not self._holds:
            raise stop

        self.stopped = exit_code(stop)


def exit_code(stop: KeyboardInterrupt) -> int:
    return TERMINATED if isinstance(stop, Terminated) else INTERRUPTED


class Terminal:
    """Output of a command. Under torchrun, only rank 0 prints."""

    def __init__(self, as_json: bool = False, quiet: bool = False) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.as_json = as_json
        self.quiet = quiet or self.rank > 0
        self.shows_bars = not self.quiet and not as_json and sys.stderr.isatty()

    def say(self, text: str) -> None:
        """Print a line of text, unless --json or --quiet."""
        if not self.as_json and not self.quiet:
            typer.echo(text)

    def note(self, text: str) -> None:
        """Print a note to stderr, unless --quiet."""
        if not self.quiet:
            typer.echo(f"note: {text}", err=True)

    def note_warnings(self, caught: Iterable[WarningMessage]) -> None:
        """Print each different warning as a note."""
        for text in dict.fromkeys(str(found.message) for found in caught):
            self.note(text)

    def warn(self, text: str) -> None:
        """Print a warning to stderr, also if --quiet."""
        if self.rank == 0:
            typer.echo(f"note: {text}", err=True)

    def print_result(self, value: dict[str, Any]) -> None:
        """Print the result as one JSON object, if --json."""
        if self.as_json and self.rank == 0:
            typer.echo(json.dumps(_to_json(value), ensure_ascii=False))

    def show_progress(self, chunks: Iterable[Chunk], what: str) -> Iterator[Chunk]:
        """Yield the chunks of a table; on a terminal, show a bar that counts rows."""
        if not self.shows_bars:
            yield from chunks
            return

        from tqdm.auto import tqdm

        with tqdm(desc=what, unit=" rows", unit_scale=True, leave=False) as bar:
            for chunk in chunks:
                yield chunk
                bar.update(chunk.table.num_rows)


def _to_json(value: Any) -> Any:
    """Convert to a value that JSON can hold; numbers that are not finite become null."""
    if isinstance(value, dict):
        return {k: _to_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(v) for v in value]

    if hasattr(value, "item"):  # a scalar of NumPy
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None

    return value


def handle_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turn errors of a command into a message and an exit code (decorator)."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except KeyboardInterrupt as stop:
            raise fail("interrupted.", exit_code(stop)) from None
        except BrokenPipeError:
            # otherwise the interpreter complains when it exits
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(FAILED) from None
        except OSError as error:
            file = error.filename or "a file"
            raise fail(f"{file}: {error.strerror or error}.") from error
        except MissingExtra as error:
            raise fail(str(error)) from error
        except BadOption as error:
            raise fail(str(error), USAGE) from error
        except (ValueError, MemoryError) as error:  # cavity's errors are ValueErrors
            raise fail(str(error) or "out of memory.") from error
        except ModuleNotFoundError as error:
            package, *_ = str(error.name).split(".")
            missing = missing_extra(package, EXTRAS.get(package, "cli"))
            raise fail(str(missing)) from error
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise

            raise fail(
                f"out of memory: reduce --n-inducing or use --device cpu "
                f"({error!s:.100})."
            ) from error

    return run


def fail(message: str, code: int = FAILED) -> typer.Exit:
    """Print an error message and return the exception that ends the command."""
    rank = os.environ.get("RANK", "0")
    place = "" if rank == "0" else f"[rank {rank}] "
    typer.echo(f"{place}error: {message}", err=True)
    return typer.Exit(code)
