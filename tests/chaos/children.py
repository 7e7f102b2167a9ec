"""Processes that may die: started from a server that has imported torch already, so
that a start takes milliseconds.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from .counting import Outcome, Tally, broken

CONTEXT = multiprocessing.get_context("forkserver")
PRELOADED = """cavity.cli.fitting cavity.cli.models cavity.cli.predicting pyarrow.dataset pyarrow.csv safetensors.torch
typer.testing torch.fx.experimental.symbolic_shapes"""  # the last one torch imports in the first fit
CONTEXT.set_forkserver_preload(PRELOADED.split())
LONG = 120.0  # seconds after which a process that should have ended hangs


class End(NamedTuple):
    """How a process ended: "value" with what it returned, "error" with a text, "died"
    with its exit code, or "hung".
    """

    kind: str
    value: Any


class Child:
    """A process that calls a function."""

    def __init__(self, work: Callable[..., Any], *arguments: Any) -> None:
        self.receiver, sender = CONTEXT.Pipe(duplex=False)
        self.process = CONTEXT.Process(
            target=_call, args=(sender, work, arguments), daemon=True
        )
        self.process.start()
        sender.close()
        self.receiver.recv()  # it has begun
        self.begun = time.monotonic()

    def signal_after(self, seconds: float, number: int) -> bool:
        """Send a signal after so many seconds, unless the process has ended; return
        whether it was sent.
        """
        if self.receiver.poll(max(0.0, seconds)):
            return False
        os.kill(self.process.pid, number)
        return True

    def wait(self, seconds: float = LONG) -> End:
        """Wait for the end; a process that takes too long is killed."""
        try:
            found = self.receiver.recv() if self.receiver.poll(seconds) else None
        except (EOFError, OSError):
            self.process.join(seconds)
            return End("died", self.process.exitcode)
        if found is None:
            self.kill()
            return End("hung", f"no end after {seconds:g} s")
        self.process.join(seconds)
        return found

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()


def _call(sender: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1), os.dup2(null, 2)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
    sender.send("begun")
    try:
        end = End("value", work(*arguments))
    except Exception:
        end = End("error", traceback.format_exc(limit=-3))
    sender.send(end)


def call(work: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process of its own and return what it returns."""
    end = Child(work, *arguments).wait()
    if end.kind != "value":
        raise RuntimeError(f"{work.__name__}: {end}")
    return end.value


Item = Callable[[int], Outcome]


def count_series(
    make: Callable[..., Item], n: int, *arguments: Any, seconds: float = 30.0
) -> Tally:
    """Count the outcomes of item 0 … n − 1 in one process.

    After a crash or a hang a new process goes on with the next item.
    """
    tally, first = Tally(), 0
    while first < n:
        receiver, sender = CONTEXT.Pipe(duplex=False)
        child = Child(_series, sender, make, arguments, first, n)
        sender.close()
        try:
            while first < n:
                if not receiver.poll(
                    seconds + 30 * (first == 0)
                ):  # the first one waits for the preparation, too
                    child.kill()
                    raise EOFError
                tally.add(receiver.recv())
                first += 1
        except EOFError:
            end = (
                child.wait(0.1)
                if child.process.exitcode is None
                else End("died", child.process.exitcode)
            )
            tally.add(
                broken(
                    f"item {first}: the process ended, or took longer than {seconds:g} "
                    f"s: {end}"
                )
            )
            first += 1
        child.kill()
    return tally


def _series(
    sender: Any,
    make: Callable[..., Item],
    arguments: tuple[Any, ...],
    first: int,
    n: int,
) -> None:
    item = make(*arguments)
    for i in range(first, n):
        try:
            found = item(i)
        except Exception:
            found = broken(f"item {i}: {traceback.format_exc(limit=-3)}")
        sender.send(found)
