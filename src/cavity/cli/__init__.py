"""The command line. typer, which it needs, is an extra: `pip install cavity[cli]`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or say what is missing."""
    try:
        from cavity.cli.app import app
    except ModuleNotFoundError as missing:
        if missing.name != "typer":
            raise
        sys.exit("The command line needs typer, which is not installed: pip install cavity[cli]")
    app(prog_name="cavity")
