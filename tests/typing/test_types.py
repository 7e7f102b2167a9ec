"""A type checker accepts right calls and refuses wrong ones, and the names that it knows are those of the registries."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from cavity.estimators import argument_types as types
from cavity.options.method import method_names

ROOT = Path(__file__).parents[2]


def test_mypy_accepts_right_calls_and_refuses_wrong_ones() -> None:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "tests/typing/calls.py"]
    done = subprocess.run(
        command, cwd=ROOT, env={"MYPYPATH": "src", "PATH": ""}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("declared", "task"), [(types.ClassifierMethod, "classification"), (types.RegressorMethod, "regression")]
)
def test_the_names_of_methods_are_those_of_the_registry(declared, task) -> None:
    assert set(get_args(get_args(declared)[0])) == set(method_names(task))
