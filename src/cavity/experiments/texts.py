"""The hand-written text of the pages, from differences.md."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

TEXT = Path(__file__).with_name("differences.md")


@cache
def paragraphs() -> dict[str, str]:
    """The hand-written text by section."""
    parts = re.split(r"^## (\S+)\n", TEXT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
