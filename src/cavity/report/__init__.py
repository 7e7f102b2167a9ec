"""How good are the probabilities: scores, reliability, rejection, sets of classes, pictures, and a page with all of it."""

from cavity.report.calibration import Reliability, error, expected_calibration_error, nll, reliability
from cavity.report.html import write_report
from cavity.report.selective import Conformal, Rejection, conformal, rejection

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
