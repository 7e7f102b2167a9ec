"""The colours of plots and reports: class k has the same colour everywhere, and colour-blind readers can tell eight apart.

The palette is that of Okabe and Ito (2008), the colours with the least contrast to white last. Classes 9 to 16 have the same hues,
half way to the ink of the page; then colours repeat.
"""

from __future__ import annotations

BLACK, GREY = "#000000", "#444444"
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", BLACK, "#F0E442")


def _continue(palette: tuple[str, ...], ink: str, of_ink: str) -> tuple[str, ...]:
    """Return the palette and its hues half way to the ink; `of_ink` is the colour of the ink itself there."""
    return *palette, *(of_ink if colour == ink else _mix(colour, ink) for colour in palette)


def _mix(a: str, b: str) -> str:
    return "#" + "".join(f"{(int(a[i : i + 2], 16) + int(b[i : i + 2], 16)) // 2:02X}" for i in (1, 3, 5))


COLOURS = _continue(OKABE_ITO, BLACK, "#808080")
ON_DARK = _continue(tuple("#E0E0E0" if c == BLACK else c for c in OKABE_ITO), "#E0E0E0", "#909090")


def choose_colours(n: int) -> list[str]:
    return [COLOURS[k % len(COLOURS)] for k in range(n)]


def name_series(k: int) -> str:
    """Return the class of the report's style sheet for the colour of class k."""
    return f"c{k % len(COLOURS)}"
