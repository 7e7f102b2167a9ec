"""Processes that are killed, or asked to end, at random moments of a fit or of a save."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
import traceback
from collections.abc import Container
from pathlib import Path
from typing import Any

import numpy as np

from .children import Child, End, call
from .counting import SURVIVED, Outcome, Tally, broken, refused, silent
from .fits import RUNS, digest, fit, fit_small, make_rows, write_rows


def count_fit_kills(n: int, rng: np.random.Generator, folder: Path) -> Tally:
    """SIGKILL at random moments of a fit that writes a checkpoint after every step;
    then resume, until the fit is done.

    The model must be that of an unbroken run.
    """
    tally, rows, names = Tally(), write_rows(folder), list(RUNS)
    unbroken: dict[str, tuple[str, float]] = {}
    for chain in itertools.count():
        if tally.runs >= n:
            return tally
        name = names[rng.integers(len(names))]
        if name not in unbroken:
            begun = time.monotonic()
            wanted = call(fit, name, rows, folder / f"{name}.whole")
            unbroken[name] = wanted, time.monotonic() - begun
        wanted, seconds = unbroken[name]
        kills, end = _kill_until_done(
            name, rows, folder / f"{chain}.ckpt", seconds, rng
        )
        if kills:
            tally.add(_judge_fit(name, end, wanted), kills)
    raise AssertionError


def _kill_until_done(
    name: str, rows: Path, path: Path, seconds: float, rng: np.random.Generator
) -> tuple[int, End]:
    kills = 0
    while True:
        child = Child(fit, name, rows, path)
        if not child.signal_after(rng.uniform(0, 1.2 * seconds), signal.SIGKILL):
            return kills, child.wait()
        end = child.wait()
        if end.kind != "died":  # it ended in the same moment
            return kills, end
        kills += 1


def _judge_fit(name: str, end: End, wanted: str) -> Outcome:
    if end.kind != "value":
        return broken(f"{name}: {end}")
    return (
        SURVIVED
        if end.value == wanted
        else silent(f"{name}: another model than that of an unbroken run")
    )


# ---------------------------------------------------------------- saving
def save_for_ever(paths: list[Path], target: Path) -> None:
    from cavity import load

    models = [load(path) for path in paths]
    while True:
        for model in models:
            model.save(target)


def make_two_models(folder: Path) -> dict[str, Path]:
    """Write two models of different sizes, some hundred kB; return their files by
    digest.
    """
    found = {}
    for seed, n in enumerate((60, 80)):
        model = fit_small(n_inducing=n, random_state=seed)
        model.save(folder / f"model-{seed}.cavity")
        found[digest(model)] = folder / f"model-{seed}.cavity"
    return found


def judge_file(path: Path, wanted: Container[str]) -> Outcome:
    """Load a model file, which must be one of these."""
    from cavity import load

    try:
        return (
            SURVIVED
            if digest(load(path)) in wanted
            else silent(f"{path}: another model")
        )
    except Exception:
        return broken(traceback.format_exc(limit=-3))


def count_save_kills(n: int, rng: np.random.Generator, folder: Path) -> Tally:
    """SIGKILL at random moments of a process that saves two models in turn to one path;
    the file must be one of the two.
    """
    models, tally, target = (
        call(make_two_models, folder),
        Tally(),
        folder / "target.cavity",
    )
    target.write_bytes(next(iter(models.values())).read_bytes())
    for _ in range(n):
        child = Child(save_for_ever, list(models.values()), target)
        if not child.signal_after(rng.uniform(0, 0.4), signal.SIGKILL):
            tally.add(broken(child.wait()))
            continue
        child.wait()
        tally.add(judge_file(target, models))
    return tally


# ---------------------------------------------------------------- SIGTERM
def run_command(log: Path, *arguments: str) -> None:
    from cavity.cli import main

    for descriptor in (1, 2):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    sys.argv = ["cavity", *arguments]
    main()


def count_terminations(n: int, rng: np.random.Generator, folder: Path) -> Tally:
    """SIGTERM at random moments of `cavity fit`: a model is saved, or the message says
    that none existed and the old file stays.
    """
    tally, table, old = Tally(), folder / "t.csv", b"not touched"
    X, y = make_rows()
    np.savetxt(
        table, np.column_stack([X, y]), delimiter=",", header="a,b,y", comments=""
    )
    out, log = folder / "m.cavity", folder / "log.txt"
    command = (run_command, log, "fit", str(table), "--target", "y", "--out", str(out), "--method", "sep",
               "--n-inducing", "8", "--max-epochs", "40", "--device", "cpu")  # fmt: skip
    begun = time.monotonic()
    Child(*command).wait()
    seconds = time.monotonic() - begun
    while tally.runs < n:
        out.write_bytes(old)
        log.write_bytes(b"")
        child = Child(*command)
        if child.signal_after(rng.uniform(0, 1.1 * seconds), signal.SIGTERM):
            tally.add(_judge_termination(child.wait(), out, old, log.read_text()))
    return tally


def _judge_termination(end: End, out: Path, old: bytes, said: str) -> Outcome:
    code: Any = end.value if end.kind == "died" else end
    if code not in (0, 143, -signal.SIGTERM) or "Traceback" in said:
        return broken(f"exit code {code}: {said}")
    if out.read_bytes() != old:
        return judge_file(out, Anything())
    if "Training on" not in said or "nothing was saved" in said:
        return refused(said)
    return silent(f"exit code {code}, and the fit is lost: {said}")


class Anything:
    """Contains every digest: a fit that was ended has no known result."""

    def __contains__(self, value: object) -> bool:
        return True
