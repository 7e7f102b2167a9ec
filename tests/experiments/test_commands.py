"""The commands: with typer and without, in words where something is wrong."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cavity.cli.app import app
from cavity.experiments.commands import main


def test_reproduce_and_the_module_are_the_same_command(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["table2", "--plan", "--splits", "1", "--results", str(tmp_path)]
    assert main(words) == 0
    plain = capfd.readouterr().out
    assert "table2:" in plain and "of one core" in plain
    result = CliRunner().invoke(app, ["reproduce", *words])
    assert result.exit_code == 0 and (result.output or capfd.readouterr().out) == plain


def test_compare_knows_its_sets_and_methods(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = CliRunner().invoke(app, ["compare", "--plan", "--sets", "wine", "--results", str(tmp_path)])
    assert result.exit_code == 0
    result = CliRunner().invoke(app, ["compare", "--plan", "--sets", "nowhere", "--results", str(tmp_path)])
    assert result.exit_code == 2


def test_a_mistake_is_a_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["fig9", "--results", str(tmp_path)]) == 2
    assert "no target 'fig9'; use one of table2" in capsys.readouterr().err


def test_a_check_without_rows_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--check", "--results", str(tmp_path)]) == 1
    assert "no rows of fits" in capsys.readouterr().err


def test_a_check_takes_its_seed_and_seconds(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["reproduce", "--check", "--seed", "3", "--seconds", "7", "--results", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    assert "fits of at most 7 s" in result.output + capfd.readouterr().err


def test_rows_can_be_computed_without_typer_matplotlib_and_tqdm(tmp_path: Path) -> None:
    code = f"""
import sys
for name in ("typer", "matplotlib", "tqdm", "safetensors", "gpytorch", "lightgbm"):
    sys.modules[name] = None
from cavity.experiments import fits
from cavity.experiments.commands import main
from cavity.experiments.jobs import Job
from cavity.experiments.provenance import Place
options = {{"batch_size": None, "max_epochs": 1, "tol": 0.0}}
assert fits.run(Job("score", "toy", 0, "ep", "2", options=options), Place())[0]["nll"] > 0
sys.exit(main(["fig1", "--plan", "--results", {str(tmp_path)!r}]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "fig1: 9 fits to do" in done.stdout
