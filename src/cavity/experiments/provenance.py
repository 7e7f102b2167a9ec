"""Where a row comes from: the code, the versions beneath it, the settings of the machine."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cavity._version import __version__

PACKAGE = Path(__file__).parents[1]
APART = ("experiments", "cli", "report")  # what a fit does not depend on


class Place(NamedTuple):
    """What a worker is told besides its job."""

    data_home: str | None = None
    device: str = "cpu"
    threads: int = 1
    commit: str = ""


@cache
def commit() -> str:
    """The commit of the code, `+` where files have changed since; outside a clone a digest of the sources."""
    if "CAVITY_COMMIT" in os.environ:
        return os.environ["CAVITY_COMMIT"]
    try:
        described = _git("rev-parse", "--short=9", "HEAD")
        return described + ("+" if _git("status", "--porcelain", "--", str(PACKAGE)) else "")
    except (OSError, subprocess.CalledProcessError):
        return "code-" + code_digest()


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(PACKAGE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()


@cache
def code_digest() -> str:
    """Of every source file that a fit runs through."""
    total = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] not in APART:
            total.update(path.read_bytes())
    return total.hexdigest()[:9]


@cache
def versions() -> str:
    """What the numbers may depend on beneath us."""
    import numpy
    import scipy
    import torch

    return (
        f"cavity {__version__} code {code_digest()}; Python {platform.python_version()}; torch {torch.__version__}; "
        f"numpy {numpy.__version__}; scipy {scipy.__version__}"
    )
