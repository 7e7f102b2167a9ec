"""Public names of version 0.3 that were removed, with what to use instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CALLBACK = "a cavity.callbacks.Callback of your own"
REMOVED = {
    "cavity.autogluon": "a subclass of AutoGluon's AbstractModel around GPClassifier",
    "cavity.mlflow": (
        'mlflow.sklearn.log_model(clf, serialization_format="cloudpickle")'
    ),
    "cavity.callbacks.JsonLines": f"history_, or {CALLBACK}",
    "cavity.callbacks.Memory": f"history_, or {CALLBACK}",
    "cavity.callbacks.TensorBoard": f"{CALLBACK} that calls writer.add_scalar",
    "cavity.callbacks.TimeBudget": "fit(X, y, time_limit=...)",
    "cavity.export.onnx_model": "cavity.export.onnx(clf, path) and onnx.load(path)",
    "cavity.kernels.Deep": "a torch module of your own as kernel=",
    "cavity.report.error": "sklearn.metrics.zero_one_loss",
    "cavity.report.expected_calibration_error": (
        "cavity.report.reliability(P, y).error"
    ),
    "cavity.report.nll": "sklearn.metrics.log_loss",
}


def explain_removed(module: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a public module.

    An ImportError reaches the user from `from module import name`, too; an
    AttributeError would lose its message there.
    """

    def refuse(name: str) -> Any:
        instead = REMOVED.get(f"{module}.{name}")
        if instead is not None:
            raise ImportError(f"{module}.{name} was removed in 0.4: use {instead}.")

        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return refuse
