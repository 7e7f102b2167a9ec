"""The cores that a process may use."""

from __future__ import annotations

import os


def count_cores() -> int:
    """Return the CPUs that the process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))

    return os.cpu_count() or 1
