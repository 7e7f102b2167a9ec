"""A target of tiny fits on a data set that needs no file."""

from dataclasses import replace

import pytest

from experiments.jobs import COLUMNS, Job
from experiments.targets import Target

SHORT = {"batch_size": None, "max_epochs": 2, "tol": 0.0}


def jobs() -> list[Job]:
    return [Job("score", "toy", split, "ep", "4", options=SHORT) for split in range(2)]


@pytest.fixture
def tiny() -> Target:
    return Target("tiny", "Two tiny fits", "tiny", jobs, COLUMNS)


@pytest.fixture
def broken(tiny: Target) -> Target:
    """One of its fits names a method that does not exist."""
    return replace(
        tiny,
        jobs=lambda: [
            *jobs()[:1],
            Job("score", "toy", 0, "nonsense", "4", options=SHORT),
        ],
    )
