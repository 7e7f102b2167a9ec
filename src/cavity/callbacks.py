"""Callbacks of a fit: pass these, or your own `Callback`, as `GPClassifier(callbacks=[...])`."""

from cavity.training.callbacks import Callback, JsonLines, TensorBoard, TimeBudget

__all__ = ["Callback", "JsonLines", "TensorBoard", "TimeBudget"]
