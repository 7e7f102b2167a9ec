"""Scores of class probabilities, reliability, rejection, conformal sets, and an HTML report on a model."""

from cavity.report.calibration import error, expected_calibration_error, nll, reliability
from cavity.report.html import write_report
from cavity.report.selective import Conformal, Rejection, conformal, rejection
from cavity.scoring import Reliability

__all__ = [
    "Conformal",
    "Rejection",
    "Reliability",
    "conformal",
    "error",
    "expected_calibration_error",
    "nll",
    "rejection",
    "reliability",
    "write_report",
]
