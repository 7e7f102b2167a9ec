"""Fixtures for tests of the commands."""

import warnings

import pytest

from cavity import GPClassifier
from support import toy


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory):
    """Path of a model saved from Python, whose columns have no names."""
    path = tmp_path_factory.mktemp("toy") / "toy.cavity"
    X, y = toy(60, 3, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        GPClassifier(n_inducing=5, max_epochs=3, random_state=0, device="cpu").fit(X, y).save(path)
    return path
