"""Callbacks of a fit: pass these, or your own `Callback`, as `GPClassifier(callbacks=[...])`."""

from cavity.training.callbacks import Callback, JsonLines

__all__ = ["Callback", "JsonLines"]
