"""The command line: plans, checks, and clear errors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.__main__ import main

ROOT = Path(__file__).parents[2]


def python(
    *arguments: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python with the path of this process."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=environment, cwd=cwd
    )


@pytest.mark.parametrize(
    "words, code, said",
    [
        ("table2 --plan --splits 1", 0, "table2: 176 fits"),
        ("table2 --plan --sets wine", 0, "table2: 215 fits"),
        (
            "table2 --plan --sets wine glass --methods ep --inducing 10% --splits 2 "
            "--epochs 9 "
            "--jobs 2 --threads 1 --budget 60 --data tables --device cpu",
            0,
            "table2: 4 fits",
        ),
        ("table2 --plan --sets nowhere", 2, "nowhere"),
        ("fig9", 2, "fig9"),
        ("--check --seed 3 --seconds 7", 1, "7 s"),
    ],
)
def test_a_command_ends_with_its_code_and_says_what_matters(
    words, code, said, tmp_path, capsys
):
    assert main([*words.split(), "--results", str(tmp_path)]) == code
    printed = capsys.readouterr()
    assert said in printed.out + printed.err


@pytest.mark.parametrize("words", [["--splits", "0"], ["--jobs", "none"], []])
def test_wrong_usage_exits_with_2(words):
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2


def test_rows_and_documents_are_found_from_any_folder(tmp_path: Path) -> None:
    done = python("-m", "experiments", "table2", "--plan", cwd=tmp_path)
    assert done.returncode == 0 and "table2: 0 fits to do" in done.stdout, done.stderr


def test_files_do_not_import_each_other_in_circles() -> None:
    """Every import of another file of `experiments`, also within functions, goes one
    way.
    """
    import ast
    from graphlib import TopologicalSorter

    graph: dict[str, set[str]] = {}
    for path in (ROOT / "experiments").glob("*.py"):
        found = graph.setdefault(path.stem, set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "experiments":
                found |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "experiments."
            ):
                found.add((node.module or "").split(".")[1])
    assert len(graph) > 10
    TopologicalSorter(graph).prepare()  # raises CycleError
