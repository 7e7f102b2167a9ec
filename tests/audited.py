"""What Python's audit events say while commands of cavity run, in a process of its own."""

import sys

import numpy as np
from typer.testing import CliRunner

from cavity import BadInput, GPClassifier, load
from cavity.cli.app import app

WATCHED = ("socket.", "urllib.", "pickle.", "subprocess.", "os.system", "os.exec")


def watch():
    """Return a list that gets the watched events of this process."""
    seen = []

    def note(event, _):
        if event.startswith(WATCHED):
            seen.append(event)

    sys.addaudithook(note)
    return seen


def go_the_whole_way(folder):
    """From a CSV file to predictions, a report and decisions; return what was seen."""
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=60)
    lines = [
        f"{c + rng.normal():.3f},{'uv'[i % 2]},{'xy'[c]}" for i, c in enumerate(kind)
    ]
    rows, model = folder / "rows.csv", folder / "model.cavity"
    rows.write_text("\n".join(["a,b,kind", *lines]) + "\n")
    (folder / "costs.toml").write_text("other = 1\n")
    seen = watch()
    for command in (
        f"fit {rows} --target kind --out {model} --effort fast",
        f"info {model}",
        f"predict {model} {rows} --out {folder / 'p.csv'}",
        f"evaluate {model} {rows}",
        f"explain {model} {rows}",
        f"report {model} {rows} --out {folder / 'r.html'}",
    ):
        done = CliRunner().invoke(app, command.split())
        assert done.exit_code == 0, done.output
    load(model)
    return seen


def read_pickles(paths):
    """Return what was seen while files that can hold code were given as tables."""
    seen = watch()
    for path in map(str, paths):
        done = CliRunner().invoke(app, ["fit", path, "--target", "kind"])
        assert done.exit_code != 0
        try:
            GPClassifier().fit(path, target="kind")
        except BadInput:
            continue
        raise AssertionError(f"{path} was read")
    return seen


def open_pickle(path):
    """Return what was seen while a pickle was read, which runs code."""
    seen = watch()
    np.load(path, allow_pickle=True)
    return seen
