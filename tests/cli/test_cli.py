"""The command line answers without torch and says what is missing."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import cavity
from cavity.cli import main
from cavity.cli.app import app
from cavity.saving.model_file import describe
from support import toy


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "120"},
    )


@pytest.mark.parametrize(
    "words, code, said",
    [
        ("--version", 0, f"cavity {cavity.__version__}"),
        ("--help", 0, "predict"),
        ("--help", 0, "2 wrong usage"),
        ("nonsense", 2, "nonsense"),
    ],
)
def test_what_needs_no_model(words: str, code: int, said: str) -> None:
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == code and said in result.output


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["fit", "--help"], ["info", "no-such-file"], ["--version"]],
)
def test_what_needs_no_torch_does_not_import_it(arguments: list[str]) -> None:
    code = """
import runpy, sys
try:
    runpy.run_module("cavity", run_name="__main__", alter_sys=True)
except SystemExit as end:
    print("code", end.code)
print("heavy", [name for name in ("torch", "numpy", "pyarrow") if name in sys.modules])
"""
    result = python(code, *arguments)
    assert f"code {int('no-such-file' in arguments)}" in result.stdout, result.stderr
    assert "heavy []" in result.stdout


def test_info_reads_a_model_without_torch_and_says_the_same_as_a_loaded_model(
    tmp_path: Path,
) -> None:
    X, y = toy(14, 3)
    path = tmp_path / "toy.cavity"
    model = cavity.GPClassifier(
        "ep",
        n_inducing=4,
        max_epochs=2,
        training=cavity.Training(tol=1.0),
        random_state=0,
    ).fit(X, y)
    model.save(path)
    code = """
import sys
from pathlib import Path
from cavity.cli.describing import describe_model
from cavity.cli.app import app
print(describe_model(Path(sys.argv[1])))
print("heavy", [name for name in ("torch", "sklearn", "scipy", "pandas", "pyarrow", "numpy") if name in sys.modules])
"""
    facts, heavy = python(code, str(path)).stdout.splitlines()
    assert heavy == "heavy ['numpy']"  # which the digest takes
    found = ast.literal_eval(facts)
    expected = describe(cavity.load(path)._record())
    assert {name: found[name] for name in expected} == expected


def test_without_typer_it_says_what_to_install() -> None:
    result = python(
        "import sys; sys.modules['typer'] = None; from cavity.cli import main; main()"
    )
    assert result.returncode == 1
    assert (
        "pip install -e '" in result.stderr
        and "[cli]'" in result.stderr
        and "Traceback" not in result.stderr
    )


def test_an_error_within_is_not_mistaken_for_a_missing_typer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cavity.cli.app", None)
    with pytest.raises(ModuleNotFoundError):
        main()
