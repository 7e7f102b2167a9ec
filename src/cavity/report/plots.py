"""Plots of a classifier. They need matplotlib: `pip install "cavity[plot]"`."""

from cavity.report.region_plot import decision_regions
from cavity.report.score_plots import (
    confusion_matrix,
    learning_curve,
    rejection_curve,
    relevance_bars,
    reliability_diagram,
)

__all__ = [
    "confusion_matrix",
    "decision_regions",
    "learning_curve",
    "rejection_curve",
    "relevance_bars",
    "reliability_diagram",
]
