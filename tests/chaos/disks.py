"""Disks that are full: a small tmpfs with little room or, where mounting is not
permitted, a limit on the size of files.
"""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path

import numpy as np

from .children import Item, count_series
from .counting import SURVIVED, Outcome, Tally, broken, refused, silent
from .fits import digest, fit, fit_small, make_rows, write_rows

SIZE = 4 << 20  # bytes of the file system
NEW_NAMESPACE, PRIVATE = 0x00020000, 1 << 18 | 1 << 14


def mount_small_disk(folder: Path) -> bool:
    """Mount a small tmpfs that only this process sees, and that ends with it; return
    whether that is permitted.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_NAMESPACE) or libc.mount(None, b"/", None, PRIVATE, None):
        return False
    return not libc.mount(
        b"tmpfs", os.fsencode(folder), b"tmpfs", 0, f"size={SIZE}".encode()
    )


def leave_room(folder: Path, room: int, mounted: bool) -> None:
    """Leave so many bytes of the disk free; 0 or more pages of a tmpfs."""
    if not mounted:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
        return
    filler = folder / "filler"
    filler.unlink(missing_ok=True)
    free = os.statvfs(folder)
    with filler.open("wb") as file:
        file.write(bytes(max(0, free.f_bavail * free.f_frsize - room)))


def free_room(folder: Path, mounted: bool) -> None:
    if mounted:
        (folder / "filler").unlink(missing_ok=True)
    else:
        resource.setrlimit(
            resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        )


def make_disk(folder: Path, seed: int) -> Item:
    """Return the runs: a save, a fit with checkpoints, or predictions, with random
    room.
    """
    disk, rows = folder / "disk", write_rows(folder)
    disk.mkdir(exist_ok=True)
    mounted = mount_small_disk(disk)
    models = [fit_small(n_inducing=n) for n in (20, 24)]
    models[0].save(folder / "model.cavity")
    np.savetxt(
        folder / "t.csv", make_rows(2000)[0], delimiter=",", header="a,b", comments=""
    )
    wanted = fit("sep", rows, max_epochs=3)
    work = (lambda room: save(models, disk, mounted, room), lambda room: checkpoints(wanted, rows, disk, mounted, room),
            lambda room: predict(folder, disk, mounted, room))  # fmt: skip

    def item(i: int) -> Outcome:
        rng = np.random.default_rng([seed, i])
        for path in disk.iterdir():
            path.unlink()
        try:
            return work[i % len(work)](int(rng.integers(0, 200_000)))
        finally:
            free_room(disk, mounted)

    return item


def save(models: list, disk: Path, mounted: bool, room: int) -> Outcome:
    """Save over an older model: the old one stays, or the new one is complete."""
    from cavity import BadFile, load

    path = disk / "m.cavity"
    models[0].save(path)
    leave_room(disk, room, mounted)
    try:
        models[1].save(path)
        outcome, wanted = SURVIVED, models[1]
    except BadFile as error:
        outcome, wanted = refused(error), models[0]
    free_room(disk, mounted)
    if digest(load(path)) != digest(wanted):
        return silent(f"room for {room} bytes: another model")
    left = [p.name for p in disk.iterdir() if p.name.endswith(".part")]
    return broken(f"left {left}") if left else outcome


def checkpoints(
    wanted: str, rows: Path, disk: Path, mounted: bool, room: int
) -> Outcome:
    """Fit with checkpoints: the model is that of a fit without, and what is written can
    be resumed.
    """
    path = disk / "run.ckpt"
    leave_room(disk, room // 4, mounted)
    if fit("sep", rows, path, max_epochs=3) != wanted:
        return silent(f"room for {room // 4} bytes: another model")
    free_room(disk, mounted)
    again = fit("sep", rows, path, max_epochs=3)
    return SURVIVED if again == wanted else silent("resumed to another model")


def predict(folder: Path, disk: Path, mounted: bool, room: int) -> Outcome:
    """`cavity predict --out`: the complete file, or a message and the old file."""
    from typer.testing import CliRunner

    from cavity.cli.app import app

    out = disk / "p.csv"
    out.write_text("old")
    leave_room(disk, room, mounted)
    done = CliRunner().invoke(
        app,
        [
            "predict",
            str(folder / "model.cavity"),
            str(folder / "t.csv"),
            "--out",
            str(out),
        ],
    )
    free_room(disk, mounted)
    if done.exit_code == 0:
        lines = len(out.read_text().splitlines())
        return SURVIVED if lines == 2001 else silent(f"exit code 0 and {lines} lines")
    if (
        not isinstance(done.exception, SystemExit)
        or "could not be written" not in done.output
    ):
        return broken(f"{done.exception!r} {done.output}")
    return (
        refused(done.output)
        if out.read_text() == "old"
        else silent("the old file is gone")
    )


def count_full_disks(n: int, rng: np.random.Generator, folder: Path) -> Tally:
    """Save, fit with checkpoints, and predict with random room on the disk."""
    return count_series(make_disk, n, folder, int(rng.integers(1 << 31)), seconds=60)
