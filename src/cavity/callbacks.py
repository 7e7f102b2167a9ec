"""Base class of callbacks: pass your own as `GPClassifier(callbacks=[...])`."""

from cavity.engine.training.callbacks import Callback

__all__ = ["Callback"]
