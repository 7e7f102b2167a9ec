"""Build the documentation in build/site: stage the pages in build/docs, then run
Zensical on them (mkdocs.yml).

    python tools/site.py

Pages in the root of the repository belong to the site, and links lead to files all over
it. Staging copies what a page links to, and turns links that work in the repository
into links that work in the site. A link to a folder becomes plain text. A notebook
becomes a page with its outputs.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Any

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
    if path == "README.md":
        return "index.md"
    if path.endswith(".ipynb"):
        path = path.replace(".ipynb", ".md")
    return path.removeprefix("docs/")


def read_page(page: str) -> str:
    """Return a page as Markdown; write the figures of a notebook where it will be."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if not page.endswith(".ipynb"):
        return text
    folder = (STAGE / place(page)).with_suffix("")
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        is_code = cell["cell_type"] == "code"
        parts.append(f"```python\n{source}\n```" if is_code else source)
        for i, output in enumerate(cell.get("outputs", [])):
            parts.append(show_output(output, folder / f"{cell['id']}-{i}.png"))
    return "\n\n".join(parts) + "\n"


def show_output(output: dict[str, Any], figure: Path) -> str:
    """Return an output of a cell as Markdown; a picture goes into the file `figure`."""
    data = output.get("data", {})
    if "image/png" not in data:
        text = "".join(output.get("text", data.get("text/plain", [])))
        return f"```text\n{text.rstrip()}\n```"
    figure.parent.mkdir(parents=True, exist_ok=True)
    figure.write_bytes(base64.b64decode(data["image/png"]))
    return f"![figure]({figure.parent.name}/{figure.name})"


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
    guides = sorted((ROOT / "docs").rglob("*.md"))
    notebooks = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
    pages = [
        *ROOT_PAGES,
        *(p.relative_to(ROOT).as_posix() for p in (*guides, *notebooks)),
    ]
    linked: set[str] = set()
    for page in pages:
        path = STAGE / place(page)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(turn_links(read_page(page), page, linked), encoding="utf-8")
    for file in sorted(linked - set(pages)):
        path = STAGE / place(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, path)


if __name__ == "__main__":
    stage()
    command = [Path(sys.executable).parent / "zensical", "build", "--clean", "--strict"]
    sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)
