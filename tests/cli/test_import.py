"""The public names are all there, and none is loaded before it is asked for."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import cavity
from cavity.saving.model_file import KINDS
from support import slow, without_warnings


def test_every_public_name_is_there_and_listed() -> None:
    for name in cavity.__all__:
        assert getattr(cavity, name) is not None
        assert name in dir(cavity)


FRESH = """
import sys
import numpy as np
import sklearn, sklearn.utils.validation, scipy, torch
before = set(sys.modules)
import cavity
cavity.GPClassifier, cavity.kernels.RBF()
print(*{name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names))

X = np.random.default_rng(0).normal(size=(40, 2))
for method in ("auto", "sep", "vi"):
    clf = cavity.GPClassifier(method, effort="fast", n_inducing=5, max_epochs=2, device="cpu")
    clf.fit(X, X[:, 0] > 0).predict_proba(X)
print("sympy" in sys.modules)

for name in [n for n in sys.modules if n.partition(".")[0] in ("cavity", "pyarrow")]:
    del sys.modules[name]
sys.modules["pyarrow"] = None
from cavity import *
GPClassifier(kernel=kernels.RBF())
import cavity.engine.batches.in_memory
print("imported")
"""


def python(code: str, cwd: Path | None = None) -> list[str]:
    """Return the lines that a fresh interpreter prints."""
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=120, cwd=cwd
    )
    return done.stdout.splitlines()


def test_a_fresh_interpreter_loads_little_and_does_without_pyarrow() -> None:
    """torch.autograd imports sympy for cotangents: half a second at the first fit of a
    process.
    """
    loaded, sympy, *rest = python(FRESH)
    assert set(loaded.split()) <= {"cavity", "sklearn", "scipy", "torch", "numpy"}
    assert sympy == "False" and rest == ["imported"]
    code = "import cavity.cli, sys; print([m for m in ('torch', 'numpy', 'sklearn') if m in sys.modules])"
    assert python(code) == ["[]"]


@pytest.fixture(scope="module")
def model_of_a_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of a table with categories, and the table."""
    folder = tmp_path_factory.mktemp("startup")
    table = {
        "size": [1.0, 2.0, 3.0, 4.0] * 5,
        "colour": ["red", "blue", "red", "green"] * 5,
    }
    frame = pd.DataFrame(table)
    frame.to_csv(folder / "new.csv", index=False)
    labels = np.array(["a", "b", "c", "b"] * 5)
    with without_warnings():
        cavity.GPClassifier("ep", n_inducing=5, max_epochs=2).fit(frame, labels).save(
            folder / "classes"
        )
        cavity.GPRegressor("fitc", n_inducing=5, max_epochs=2).fit(
            frame, np.arange(20.0)
        ).save(folder / "numbers")
    return folder


SLOW = ("sklearn", "scipy", "pyarrow.dataset", "pyarrow.parquet", "matplotlib")


@pytest.mark.parametrize(
    ("option", "unwanted"),
    [
        ("", ("torch", "pandas", *SLOW)),
        slow("'--device', 'cpu'", ("torch._dynamo", *SLOW)),
    ],
)
def test_predictions_of_the_command_line_load_no_slow_package(
    option: str, unwanted: tuple[str, ...], model_of_a_table: Path
) -> None:
    """Those of a few rows need neither torch nor pandas; those that need torch do
    without scikit-learn.
    """
    code = (
        "import sys; from cavity.cli.app import app\n"
        "for model in ('classes', 'numbers'):\n"
        f"    app(['predict', model, 'new.csv', {option}], standalone_mode=False)\n"
        f"    print(model, [m for m in {unwanted} if m in sys.modules])"
    )
    lines = python(code, model_of_a_table)
    assert len(lines) == 44
    assert (lines[21], lines[43]) == ("classes []", "numbers []")


@pytest.mark.parametrize("cls", [cavity.GPClassifier, cavity.GPRegressor])
def test_model_files_know_the_estimators_without_loading_them(cls: type) -> None:
    assert KINDS[cls._kind] == cls.__name__
