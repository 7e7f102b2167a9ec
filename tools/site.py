"""Build the documentation in build/site: stage the pages in build/docs, then run
Zensical on them (mkdocs.yml).

    python tools/site.py

Pages in the root of the repository belong to the site, and links lead to files all over
it. Staging copies what a page links to, and turns links that work in the repository
into links that work in the site. A link to a folder becomes plain text.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
STAGE = ROOT / "build" / "docs"
ROOT_PAGES = (
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "NOTATION.md",
    "README.md",
    "RELEASING.md",
    "SECURITY.md",
    "examples/README.md",
)
LINK = re.compile(r"\[(?P<text>[^]]*)\]\((?P<path>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")


def place(path: str) -> str:
    """Return where a file of the repository is in the site: docs/ is its root, and
    README.md its home.
    """
    return "index.md" if path == "README.md" else path.removeprefix("docs/")


def turn_links(text: str, page: str, linked: set[str]) -> str:
    """Return a page with links for the site; `linked` gets the files that it links to."""
    folder = PurePosixPath(page).parent.as_posix()

    def turn(link: re.Match[str]) -> str:
        target = os.path.normpath(f"{folder}/{link['path']}")
        if (ROOT / target).is_dir():
            return link["text"]
        if not (ROOT / target).is_file():
            return link[0]
        linked.add(target)
        path = os.path.relpath(place(target), PurePosixPath(place(page)).parent)
        return f"[{link['text']}]({path}{link['anchor'] or ''})"

    return LINK.sub(turn, text)


def stage() -> None:
    """Write the pages and the files that they link to into build/docs."""
    shutil.rmtree(STAGE, ignore_errors=True)
    pages = [
        *ROOT_PAGES,
        *(
            p.relative_to(ROOT).as_posix()
            for p in sorted((ROOT / "docs").rglob("*.md"))
        ),
    ]
    linked: set[str] = set()
    for page in pages:
        path = STAGE / place(page)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            turn_links((ROOT / page).read_text(encoding="utf-8"), page, linked),
            encoding="utf-8",
        )
    for file in sorted(linked - set(pages)):
        path = STAGE / place(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, path)


if __name__ == "__main__":
    stage()
    command = [Path(sys.executable).parent / "zensical", "build", "--clean", "--strict"]
    sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)
