"""Run commands of the command line, in this process or in one of their own."""

import os
import subprocess
import sys

from typer.testing import CliRunner

from cavity.cli import fitting, settings
from cavity.cli.app import app
from cavity.cli.terminal import Terminal

TRAIN = (
    "--target",
    "species",
    "--ignore",
    "id",
    "--device",
    "cpu",
)  # for the tables of penguins.py
QUICK = ("--n-inducing", "6", "--max-epochs", "8", "--device", "cpu")
# a fit without folds
SINGLE_FLAGS = {"n_inducing": 6, "max_epochs": 3, "device": "cpu", "effort": "fast"}
SINGLE = tuple(
    f"--{name.replace('_', '-')}={value}" for name, value in SINGLE_FLAGS.items()
)


def run(*arguments):
    """Run a command; it must not raise anything but SystemExit."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "80"})
    assert result.exception is None or isinstance(result.exception, SystemExit), (
        result.exception
    )
    assert "Traceback" not in result.output
    return result


def fit_in_pieces(data, **flags):
    """Run `cavity fit` as for a table that is larger than memory."""
    fitting.run(data, settings.read(flags, None, data), Terminal(), memory=0)


def command(*arguments, cwd=None, module=("-m", "cavity")):
    """Run a command in a process of its own."""
    environment = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("RANK", "WORLD", "LOCAL_", "MASTER_"))
    }
    return subprocess.run(
        [sys.executable, *module, *map(str, arguments)],
        cwd=cwd, capture_output=True, text=True, timeout=300, env={**environment, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
