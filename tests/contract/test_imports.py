"""Files import each other in one direction.

The layers themselves are a contract of import-linter (pyproject.toml).
"""

import ast
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

import cavity

grimp = pytest.importorskip(
    "grimp", reason="comes with import-linter, of the extra dev"
)


def test_no_file_imports_itself_through_others():
    """import-linter compares siblings; this also finds a file that imports its own
    package. Imports for type checkers count.
    """
    graph = grimp.build_graph("cavity", cache_dir=None)
    assert len(graph.modules) > 100
    imports = {
        file: graph.find_modules_directly_imported_by(file) for file in graph.modules
    }
    TopologicalSorter(
        imports
    ).prepare()  # raises CycleError, which names the files of a circle


def test_layers_above_the_estimators_read_no_private_names_of_objects():
    """What they need of a fitted estimator is in `estimators/fitted_view.py`."""
    package, tuples = (
        Path(cavity.__file__).parent,
        {"_replace", "_asdict", "_make", "_fields"},
    )
    rooms = ("report", "cli", "export")
    folders = (package.glob(f"{room}/**/*.py") for room in rooms)
    files = list(chain.from_iterable(folders))
    found = []
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Attribute) or node.attr in tuples:
                continue

            private = node.attr.startswith("_") and not node.attr.endswith("__")
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if private and not own:
                found.append(f"{path.name}:{node.lineno} {ast.unparse(node)}")
    assert len(files) > 30 and found == []


@pytest.mark.parametrize("package", [cavity, cavity.kernels, cavity.likelihoods])
def test_names_that_are_loaded_late_are_listed(package):
    """`dir` is what completion in a shell or a notebook offers."""
    assert set(package.__all__) <= set(dir(package))
