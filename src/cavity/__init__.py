"""Scalable multi-class Gaussian process classification by expectation propagation.

torch is large: it is loaded with the first name that needs it, and the command line answers without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cavity._version import __version__
from cavity.errors import BadFile, BadInput, BadOption, CavityError, NotPositiveDefinite

if TYPE_CHECKING:
    from cavity import callbacks, distributed, export, factors, kernels, methods, plots, report
    from cavity.config.training import Training
    from cavity.estimators import GPClassifier, GPRegressor, load
    from cavity.tabular.preparation import Preparation

__all__ = [
    "BadFile",
    "BadInput",
    "BadOption",
    "CavityError",
    "GPClassifier",
    "GPRegressor",
    "NotPositiveDefinite",
    "Preparation",
    "Training",
    "__version__",
    "callbacks",
    "distributed",
    "export",
    "factors",
    "kernels",
    "load",
    "methods",
    "plots",
    "report",
]


if not TYPE_CHECKING:  # a type checker must not believe that every name exists

    def __getattr__(name: str) -> Any:
        """The public names that need torch, loaded when they are first asked for (PEP 562)."""
        if name in ("callbacks", "distributed", "export", "factors", "kernels", "methods", "plots", "report"):
            return import_module(f"cavity.{name}")
        if name in ("GPClassifier", "GPRegressor", "load"):
            return getattr(import_module("cavity.estimators"), name)
        if name == "Training":
            return import_module("cavity.config.training").Training
        if name == "Preparation":
            return import_module("cavity.tabular.preparation").Preparation
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
