"""Colours of plots and reports: class k has the same colour everywhere.

The palette of Okabe and Ito (2008), which colour-blind readers can tell apart, comes
first; colours with little contrast to white come last. Its yellow is faint on white and
becomes violet there. Classes 9 to 16 have the same hues, half way to the ink of the
page; then colours repeat.
"""

from __future__ import annotations

GREY = "#444444"
BRIGHT = "#0072B2 #D55E00 #009E73 #CC79A7 #E69F00 #56B4E9".split()
COLOURS = [
    *BRIGHT,
    *"#000000 #7D2AE0 #003959 #6A2F00 #004F39".split(),
    *"#663C53 #734F00 #2B5A74 #808080 #3F1570".split(),
]
ON_DARK = [
    *BRIGHT,
    *"#E0E0E0 #F0E442 #70A9C9 #DA9F70 #70BFA9".split(),
    *"#D6ACC3 #E3BF70 #9BCAE4 #909090 #E8E291".split(),
]


def choose_colours(n: int) -> list[str]:
    return [COLOURS[k % len(COLOURS)] for k in range(n)]


def name_series(k: int) -> str:
    """Return the class of the report's style sheet for the colour of class k."""
    return f"c{k % len(COLOURS)}"
