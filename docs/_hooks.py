"""MkDocs hooks: also show the pages and result files that live outside docs/.

A link `../X` that leaves docs/ becomes a link to the copy of X in the site. A root page's `docs/X` becomes X.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
PAGES = ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "NOTATION.md", "SECURITY.md"]
OTHERS = ["LICENSE", "CITATION.cff", "constraints.txt", "pyproject.toml", "Makefile"]
_LINK = re.compile(r"(\]\()((?:\.\./)*)([^)#:]+)([^)]*\))")


def on_files(files: Any, config: Any) -> Any:
    """Add the root pages, the files they link to, and the result rows of the benchmarks."""
    outside = [ROOT / name for name in (*PAGES, *OTHERS)]
    outside += [*sorted(ROOT.glob("benchmarks/**/*.py")), *sorted(ROOT.glob("benchmarks/results/*"))]
    for path in outside:
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links that work in the repository into links that work in the site."""
    source = page.file.src_uri
    from_root = source in PAGES
    depth = source.count("/")

    def turn(match: re.Match[str]) -> str:
        start, up, target, end = match.groups()
        levels = len(up) // 3
        if from_root and levels == 0:
            target = "index.md" if target in ("README.md", "docs/") else target.removeprefix("docs/")
        elif levels == depth + 1:  # out of docs/
            up = "../" * depth
            target = "index.md" if target == "README.md" else target
        return f"{start}{up}{target}{end}"

    return _LINK.sub(turn, markdown)
