"""Run commands of the command line in this process."""

from typer.testing import CliRunner

from cavity.cli.app import app

TRAIN = ("--target", "species", "--ignore", "id", "--device", "cpu")  # for the tables of penguins.py


def run(*arguments):
    """Run a command; it must not raise anything but SystemExit."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "80"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result
