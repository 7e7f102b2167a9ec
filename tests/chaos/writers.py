"""Two processes write one file while two others read it."""

from __future__ import annotations

import traceback
from pathlib import Path

import numpy as np

from .children import Child, call
from .counting import SURVIVED, Outcome, Tally, broken, silent
from .fits import digest
from .kills import make_two_models, save_for_ever


def read_often(path: Path, wanted: list[str], n: int) -> list[Outcome]:
    from cavity import load

    found = []
    for _ in range(n):
        try:
            found.append(
                SURVIVED
                if digest(load(path)) in wanted
                else silent("neither of the two models")
            )
        except Exception:
            found.append(broken(traceback.format_exc(limit=-3)))
    return found


def count_reads(n: int, rng: np.random.Generator, folder: Path) -> Tally:
    """Every read finds one of the two models, complete."""
    models, tally, target = (
        call(make_two_models, folder),
        Tally(),
        folder / "shared.cavity",
    )
    paths = list(models.values())
    target.write_bytes(paths[0].read_bytes())
    writers = [Child(save_for_ever, paths[::turn], target) for turn in (1, -1)]
    readers = [Child(read_often, target, list(models), (n + 1) // 2) for _ in range(2)]
    for reader in readers:
        end = reader.wait(600)
        for outcome in end.value if end.kind == "value" else [broken(end)]:
            tally.add(outcome)
    for writer in writers:
        if not writer.process.is_alive():
            tally.add(broken(writer.wait()))
        writer.kill()
    return tally
