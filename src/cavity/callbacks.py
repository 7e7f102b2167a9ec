"""Base class of callbacks: pass your own as `GPClassifier(callbacks=[...])`."""

from typing import TYPE_CHECKING

from cavity.common.removed import explain_removed
from cavity.engine.training.callbacks import Callback

__all__ = ["Callback"]

if not TYPE_CHECKING:
    __getattr__ = explain_removed(__name__)
