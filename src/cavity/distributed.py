"""Fit one model by several processes: `join` the group that torchrun started, fit, and
`leave` it.
"""

from cavity.engine.processes import join, leave

__all__ = ["join", "leave"]
