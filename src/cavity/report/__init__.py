"""How good are the probabilities: scores, reliability, pictures, and the demo that shows them."""

from cavity.report.calibration import Reliability, error, expected_calibration_error, nll, reliability

__all__ = ["Reliability", "error", "expected_calibration_error", "nll", "reliability"]
