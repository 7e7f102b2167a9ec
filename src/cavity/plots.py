"""Plots of a classifier. They need matplotlib: `pip install "cavity[plot]"`."""

from cavity.report.plots import (
    confusion_matrix,
    learning_curve,
    rejection_curve,
    relevance_bars,
    reliability_diagram,
)
from cavity.report.regions import decision_regions

__all__ = [
    "confusion_matrix",
    "decision_regions",
    "learning_curve",
    "rejection_curve",
    "relevance_bars",
    "reliability_diagram",
]
