"""Fixtures for tests of the commands."""

import contextlib

import pytest

from cavity import GPClassifier
from cli.penguins import main as write_penguins
from cli.running import QUICK, TRAIN, run
from support import toy, without_warnings


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory):
    """Path of a model saved from Python, whose columns have no names."""
    path = tmp_path_factory.mktemp("toy") / "toy.cavity"
    X, y = toy(60, 3, seed=0)
    with without_warnings():
        GPClassifier(
            effort="fast", n_inducing=5, max_epochs=3, random_state=0, device="cpu"
        ).fit(X, y).save(path)
    return path


@pytest.fixture(scope="session")
def birds(tmp_path_factory):
    """Folder with the tables and a model that the command made."""
    folder = tmp_path_factory.mktemp("birds")
    write_penguins(folder)
    with contextlib.chdir(folder):
        done = run("fit", "penguins.csv", *TRAIN, *QUICK, "--out", "birds.cavity")
    assert done.exit_code == 0, done.stderr
    (folder / "fit.txt").write_text(done.stdout)
    (folder / "fit.err").write_text(done.stderr)
    return folder
