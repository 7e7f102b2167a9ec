"""Scores of class probabilities, reliability, detection of a class, rejection, conformal
sets, and an HTML report on a model.
"""

from typing import TYPE_CHECKING

from cavity.common.removed import explain_removed
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

if not TYPE_CHECKING:
    __getattr__ = explain_removed(__name__)
