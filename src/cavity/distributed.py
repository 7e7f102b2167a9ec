"""Fit one model with several processes started by torchrun.

Call `join`, fit, then `leave`.
"""

from cavity.engine.processes import join, leave

__all__ = ["join", "leave"]
