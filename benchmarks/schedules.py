"""The papers' Figure 1: log Z_q against seconds for three schedules (vehicle, M = N/5, 250 updates), as a PNG and a CSV.

    python benchmarks/schedules.py [--splits 1] [--jobs 1] [--data FOLDER] [--results bench-results]

`fig1` of `cavity reproduce`; further arguments are handed on.
"""

from __future__ import annotations

import sys

from cavity.experiments.commands import main

if __name__ == "__main__":
    if "--help" in sys.argv or "-h" in sys.argv:
        print(__doc__)
        sys.exit(0)
    given = sys.argv[1:]
    sys.exit(main(["fig1", *given, *([] if "--results" in given else ["--results", "bench-results"])]))
