"""Callbacks follow a fit and may stop it: pass them as ``GPClassifier(callbacks=[...])``.

Use the ones below, or derive your own from `Callback`.
"""

from cavity.estimators.watch import Validation
from cavity.training.callbacks import Callback, JsonLines, Memory, TensorBoard, TimeBudget

__all__ = ["Callback", "JsonLines", "Memory", "TensorBoard", "TimeBudget", "Validation"]
