"""The axes and colours of all plots. They need matplotlib: `pip install "cavity[plot]"`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cavity.errors import missing_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Most colour-blind readers can distinguish these, and they differ in grey.
COLOURS = (
    "#2f6db3",
    "#e08214",
    "#3a9b6f",
    "#b2365c",
    "#7a5bb0",
    "#8c6d46",
    "#d37fb6",
    "#6b6b6b",
    "#b5a832",
    "#27a0ad",
)
GREY = "#444444"


def get_axes(ax: Axes | None) -> Axes:
    """Return the given axes, or the current ones of pyplot."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError:
        raise missing_extra("matplotlib", "plot") from None
    return pyplot.gca()


def choose_colours(n: int) -> list[str]:
    """Return one colour per class; colours repeat after ten."""
    return [COLOURS[k % len(COLOURS)] for k in range(n)]
