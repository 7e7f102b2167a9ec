"""Gaussian process classification and regression for tables.

Names that need torch load it at first use, so the command line starts without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cavity.common.removed import explain_removed
from cavity.common.version import __version__
from cavity.errors import BadFile, BadInput, BadOption, CavityError, NotPositiveDefinite

if TYPE_CHECKING:
    from cavity import (
        callbacks,
        cluster,
        distributed,
        export,
        kernels,
        likelihoods,
        methods,
        report,
        testing,
    )
    from cavity.estimators import GPClassifier, GPRegressor, load
    from cavity.fitting.options.training import Training
    from cavity.prediction.decisions import Costs
    from cavity.report import plots
    from cavity.tables.columns.preparation import Preparation

__all__ = [
    "BadFile",
    "BadInput",
    "BadOption",
    "CavityError",
    "Costs",
    "GPClassifier",
    "GPRegressor",
    "NotPositiveDefinite",
    "Preparation",
    "Training",
    "__version__",
    "callbacks",
    "cluster",
    "distributed",
    "export",
    "kernels",
    "likelihoods",
    "load",
    "methods",
    "plots",
    "report",
    "testing",
]


# modules that are attributes of `cavity`
_MODULES = {
    "callbacks": "cavity.callbacks",
    "cluster": "cavity.cluster",
    "distributed": "cavity.distributed",
    "export": "cavity.export",
    "kernels": "cavity.kernels",
    "likelihoods": "cavity.likelihoods",
    "methods": "cavity.methods",
    "plots": "cavity.report.plots",
    "report": "cavity.report",
    "testing": "cavity.testing",
}

if not TYPE_CHECKING:  # a type checker must not believe that every name exists

    def __getattr__(name: str) -> Any:
        """Load a public name that needs torch at its first use (PEP 562)."""
        if name in _MODULES:
            return import_module(_MODULES[name])
        if name in ("GPClassifier", "GPRegressor", "load"):
            return getattr(import_module("cavity.estimators"), name)
        if name == "Training":
            return import_module("cavity.fitting.options.training").Training
        if name == "Costs":
            return import_module("cavity.prediction.decisions").Costs
        if name == "Preparation":
            return import_module("cavity.tables.columns.preparation").Preparation

        return explain_removed(__name__)(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
