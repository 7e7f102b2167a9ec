"""The axes of all plots. They need matplotlib: `pip install "cavity[plot]"`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cavity.errors import missing_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def get_axes(ax: Axes | None) -> Axes:
    """Return the given axes, or the current ones of pyplot."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError:
        raise missing_extra("matplotlib", "plot") from None
    return pyplot.gca()
