"""Files import each other in one direction. The layers themselves are a contract of import-linter (pyproject.toml)."""

from graphlib import TopologicalSorter

import pytest

grimp = pytest.importorskip("grimp", reason="comes with import-linter, of the extra dev")


def test_no_file_imports_itself_through_others():
    """import-linter compares siblings; this also finds a file that imports its own package. Imports for type checkers count."""
    graph = grimp.build_graph("cavity", cache_dir=None)
    assert len(graph.modules) > 100
    imports = {file: graph.find_modules_directly_imported_by(file) for file in graph.modules}
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the files of a circle
