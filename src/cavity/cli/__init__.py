"""Command line. It needs typer: `pip install "cavity[cli]"`."""

from __future__ import annotations

import sys

from cavity.errors import missing_extra


def main() -> None:
    """Run the command line, or say how to install it."""
    try:
        from cavity.cli.app import app
    except ModuleNotFoundError as missing:
        if missing.name != "typer":
            raise

        sys.exit(str(missing_extra("typer", "cli")))

    app(prog_name="cavity")
