"""Check that a comprehension has one `for` and at most one `if`: more read as loops."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "tools", "examples", "experiments", "benchmarks", "docs")


def find_long(source: str) -> Iterator[int]:
    """Yield the lines of comprehensions with a second `for` or `if`."""
    for node in ast.walk(ast.parse(source)):
        clauses = getattr(node, "generators", [])
        if len(clauses) > 1 or any(len(clause.ifs) > 1 for clause in clauses):
            yield node.lineno


def main() -> int:
    """Print every long comprehension."""
    folders = [(ROOT / name).rglob("*.py") for name in FOLDERS]
    files = sorted(chain.from_iterable(folders))
    found = 0
    for path in files:
        for line in find_long(path.read_text(encoding="utf-8")):
            found += 1
            print(f"{path.relative_to(ROOT)}:{line}: comprehension with two for or if")
    print(f"{found} long comprehensions in {len(files)} files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
