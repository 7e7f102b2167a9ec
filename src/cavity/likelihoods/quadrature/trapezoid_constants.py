"""Constants of the trapezoidal rule, shared by `trapezoid` (torch, many rows) and `single_row` (NumPy, one row)."""

from __future__ import annotations

DROP = 26.0  # an integrand ends where its logarithm has fallen by this
STEP = 0.8  # of the rule, in standard deviations of the sharpest integrand
MOST = 512  # nodes; rows that need more are left to grids that adapt to each class
CROWD = 16  # classes above which the product falls much faster to the left than the leader's Φ alone
NEARER_SHARES = (0.6, 0.45)  # of the way from b to the lower end: a crowd's integrands may end there
GROWTH, BEND, AFTER = (
    3.0,
    6.0,
    3.0,
)  # a crowd's steps grow threefold, within BEND steps of the point AFTER steps right of b
MEAN_SLOPE, SLOPE_SPREAD = 0.5 * (GROWTH + 1), 0.5 * (GROWTH - 1)  # of the map to nodes whose steps grow
WIDE = 128  # panels of a crowd above which its span is scanned
SCANNED, SCANS = 12, 2  # points of a scan, and scans
LEAST = 1e-280  # a smaller probability is not accurate: sums are in linear scale
CEILING = 26.0  # of |u|: exp(−u²) is not 0, and erfcx(−u) is finite


def most_change(C: int) -> float:
    """Return by how much a row may change without every other node: with many classes the error falls more slowly."""
    return 1e-3 if C <= CROWD else 3e-4
