"""A type checker accepts right calls and refuses wrong ones, and the names that it
knows are those of the registries.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from cavity.estimators import argument_types as types
from cavity.fitting.options.library import method_names

ROOT = Path(__file__).parents[2]


def test_mypy_accepts_right_calls_and_refuses_wrong_ones() -> None:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "tests/typing/calls.py"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={"MYPYPATH": "src", "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_pyright_accepts_right_calls_and_refuses_wrong_ones(tmp_path) -> None:
    pytest.importorskip("pyright")
    shutil.copy(ROOT / "tests/typing/calls.py", tmp_path)
    settings = {
        "extraPaths": [str(ROOT / "src")],
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--pythonpath",
        sys.executable,
        "-p",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("declared", "task"),
    [(types.ClassifierMethod, "classification"), (types.RegressorMethod, "regression")],
)
def test_the_names_of_methods_are_those_of_the_registry(declared, task) -> None:
    assert set(get_args(get_args(declared)[0])) == set(method_names(task))
