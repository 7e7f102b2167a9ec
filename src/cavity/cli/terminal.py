"""What the commands say, and how they end: text or JSON on stdout, progress and errors on stderr, exit codes."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar

import typer

from cavity.errors import BadOption

P = ParamSpec("P")
T = TypeVar("T")

FAILED, USAGE, INTERRUPTED = 1, 2, 130
EXIT_CODES = "Exit codes: 0 done, 1 failed (the message says why), 2 wrong usage, 130 interrupted."


class Terminal:
    """Where a command's words go. Of several processes only the first speaks."""

    def __init__(self, as_json: bool = False, quiet: bool = False) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.as_json, self.quiet = as_json, quiet or self.rank > 0
        self.shows_bars = not self.quiet and not as_json and sys.stderr.isatty()

    def say(self, text: str) -> None:
        """A line for people."""
        if not self.as_json and not self.quiet:
            typer.echo(text)

    def note(self, text: str) -> None:
        """A line that must not get into the output."""
        if not self.quiet:
            typer.echo(f"note: {text}", err=True)

    def result(self, value: dict[str, Any]) -> None:
        """The outcome, for machines."""
        if self.as_json and self.rank == 0:
            typer.echo(json.dumps(value, ensure_ascii=False))

    def bar(self, items: Iterable[T], what: str, size: Callable[[T], int]) -> Iterator[T]:
        """The items, with a bar that counts their rows where someone watches."""
        if not self.shows_bars:
            yield from items
            return
        from tqdm.auto import tqdm

        with tqdm(desc=what, unit=" rows", unit_scale=True, leave=False) as bar:
            for item in items:
                yield item
                bar.update(size(item))


def table(rows: list[tuple[str, str]], indent: int = 2) -> str:
    """Two columns, the first as wide as its widest, each entry on one line."""
    rows = [(" ".join(name.split()), " ".join(text.split())) for name, text in rows]
    width = min(40, max((len(name) for name, _ in rows), default=0))
    return "\n".join(f"{' ' * indent}{name:<{width}}  {text}" for name, text in rows)


def guarded(command: Callable[P, T]) -> Callable[P, T]:
    """The command, whose errors become a message and an exit code."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except KeyboardInterrupt:
            raise fail("interrupted.", INTERRUPTED) from None
        except BadOption as error:
            raise fail(str(error), USAGE) from error
        except BrokenPipeError:
            os.dup2(
                os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
            )  # or the interpreter complains at its end
            raise typer.Exit(FAILED) from None
        except OSError as error:
            raise fail(f"{error.filename or 'a file'}: {error.strerror or error}.", FAILED) from error
        except (
            ValueError,
            MemoryError,
        ) as error:  # all errors of ours are ValueErrors, and so are scikit-learn's
            raise fail(str(error) or "out of memory.", FAILED) from error
        except ModuleNotFoundError as error:
            raise fail(f"{error.name} is not installed: pip install 'cavity[cli]'.", FAILED) from error
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            raise fail(
                f"out of memory: try fewer --n-inducing, or --device cpu ({error!s:.100}).", FAILED
            ) from error

    return run


def fail(message: str, code: int) -> typer.Exit:
    """Say why, and how to end."""
    rank = os.environ.get("RANK", "0")
    typer.echo(f"{'' if rank == '0' else f'[rank {rank}] '}error: {message}", err=True)
    return typer.Exit(code)
