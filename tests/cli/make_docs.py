"""Fill the transcripts of docs/cli.md: python tests/cli/make_docs.py."""

import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from typer.testing import CliRunner

from cavity.cli.app import app

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "cli.md"
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
SETTINGS = """\
target = "species"
n_inducing = 10
max_epochs = 100
tol = 0.01
kernel = "Matern52 + Linear"
method = { name = "rep", epsilon = 0.1 }

[columns]
id = "ignore"
"""


def run_command(line):
    """Return what a command prints in the current folder."""
    name, *arguments = shlex.split(line)
    if name == "cat":
        return Path(arguments[0]).read_text()
    if name == "head":
        return "".join(
            Path(arguments[1])
            .read_text()
            .splitlines(keepends=True)[: -int(arguments[0])]
        )
    if name == "python":
        script = [sys.executable, ROOT / arguments[0], *arguments[1:]]
        return subprocess.run(script, capture_output=True, check=True, text=True).stdout
    assert name == "cavity", line
    result = CliRunner().invoke(
        app, arguments, env={"COLUMNS": "80"}, prog_name="cavity"
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), (
        result.exception
    )
    return result.output + (
        f"(exit code {result.exit_code})\n" if result.exit_code else ""
    )


def fill_transcripts(text):
    """Return the page with every transcript filled in again."""

    def run(block):
        lines = [line for line in block.group(1).splitlines() if line.startswith("$ ")]
        parts = [
            f"{line}\n{output}\n" if (output := run_command(line[2:])) else f"{line}\n"
            for line in lines
        ]
        return "```console\n" + "".join(parts).rstrip("\n") + "\n```"

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("settings.toml").write_text(SETTINGS)
        return BLOCK.sub(run, text)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(fill_transcripts(text), encoding="utf-8")
