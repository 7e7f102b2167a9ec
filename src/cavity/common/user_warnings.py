"""Warnings at the line of the user's program that called the library."""

from __future__ import annotations

import sys
import warnings
from itertools import count
from pathlib import Path

PACKAGE = str(Path(__file__).parents[1])
WRAPPERS = ("sklearn", "contextlib", "torch")  # their decorators are on the stack


def warn_user(text: str, kind: type[Warning] = UserWarning) -> None:
    """Warn at the first line on the stack that is not of the library."""
    for level in count(2):
        try:
            frame = sys._getframe(level - 1)
        except ValueError:  # the library is the whole program
            break

        module = frame.f_globals.get("__name__", "").partition(".")[0]
        own = frame.f_code.co_filename.startswith(PACKAGE)
        if not own and module not in WRAPPERS:
            break

    warnings.warn(text, kind, stacklevel=level)
