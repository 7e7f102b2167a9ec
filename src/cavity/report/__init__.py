"""Scores of class probabilities, reliability, detection of a class, rejection, conformal
sets, and an HTML report on a model.
"""

from cavity.common.scoring import Reliability
from cavity.report.calibration import reliability
from cavity.report.detection import Detection, detection
from cavity.report.html import write_report
from cavity.report.selective import Conformal, Rejection, conformal, rejection

__all__ = [
    "Conformal",
    "Detection",
    "Rejection",
    "Reliability",
    "conformal",
    "detection",
    "rejection",
    "reliability",
    "write_report",
]
