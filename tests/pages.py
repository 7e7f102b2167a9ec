"""Code of the documentation, run as a reader would run it."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def run_section(page, heading, **names):
    """Run the Python blocks of one section of a page, given some names; return all
    names.
    """
    text = (DOCS / page).read_text(encoding="utf-8")
    section = re.search(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.M | re.S
    )[1]
    for block in re.findall(r"^```python\n(.*?)^```", section, re.M | re.S):
        exec(compile(block, f"{page}, {heading}", "exec"), names)
    return names


def read_commands(page, heading):
    """Return the lines of the shell blocks of one section of a page."""
    text = (DOCS / page).read_text(encoding="utf-8")
    section = re.search(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.M | re.S
    )[1]
    blocks = re.findall(r"^```sh\n(.*?)^```", section, re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip()]
