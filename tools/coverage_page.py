"""Write docs/results/coverage.md from the rows of tests/covered.

    python tools/coverage_page.py [--check]

With --check, nothing is written; the exit code is 1 if the page is out of date.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "coverage.md"
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

HEAD = """# What of the documents runs

Each row has a method, an algorithm, a figure or a table of the four documents, the line \
that runs it, what its result is compared with and the largest error that the test \
allows. `tests/covered` runs every line; `python tools/coverage_page.py` writes this page.

Sources: t thesis, i ICML paper, r review, s slides. `sparse` has inducing points, \
`full` has one at every row, `plain` is `full` without latent noise; in all three, and \
in `fixed`, hyper-parameters are given. `learnt` learns them. `gp` is the model of \
`sparse` as an `engine.GP`; `sampling` and `gibbs` are references of the tests. [Choose a method](../methods.md) says when to use each.

"""
COLUMNS = ("source", "what", "line", "compared with", "error at most")


def list_rows() -> dict[str, list[Any]]:
    """Return the rows by chapter."""
    from covered import background, classification, experiments, regression

    return {
        "Classification": classification.ROWS,
        "Regression": regression.ROWS,
        "One latent value, Monte Carlo": background.ROWS,
        "Experiments": experiments.ROWS,
    }


def make_page() -> str:
    """Return the text of the page."""
    parts = [HEAD]
    for chapter, rows in list_rows().items():
        parts.append(f"## {chapter}\n\n")
        parts.append(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}\n")
        for row in rows:
            cells = (row.source, row.what, f"`{row.line}`", row.judge, f"{row.bound:g}")
            parts.append(f"| {' | '.join(cells)} |\n")
        parts.append("\n")

    return "".join(parts).rstrip() + "\n"


def main() -> int:
    page = make_page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page:
        print("coverage.md is out of date: run python tools/coverage_page.py.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
