"""Types of the estimators' arguments.

A test compares the names of methods, kernels and rules with the registries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:  # they load torch
    import torch

    from cavity.engine.kernels.base import KernelLike
    from cavity.fitting.options.method import Method
    from cavity.fitting.options.regression_methods import RegressionMethod

# ruff: noqa: UP007  names in quotes have no operator |

# arrays, frames, tensors, sparse matrices, files, batches: see `GPClassifier.fit`
TableLike: TypeAlias = object
# labels, targets or weights, one per row
Column: TypeAlias = ArrayLike
EvalSet: TypeAlias = tuple[TableLike, Column] | Sequence[tuple[TableLike, Column]]
Seed: TypeAlias = int | np.random.RandomState | None
Device: TypeAlias = Union[str, "torch.device"]
KernelArgument: TypeAlias = Union["KernelLike", None]

Effort: TypeAlias = Literal["fast", "balanced"]
Calibration: TypeAlias = Literal["auto", "temperature"]
ClassifierMethod: TypeAlias = Union[
    Literal["auto", "ep", "sep", "rep", "pep", "gfitc", "vi", "laplace"], "Method"
]
RegressorMethod: TypeAlias = Union[
    Literal["exact", "fitc", "vi", "svi", "pp", "sr", "nystrom", "sd", "bcm", "cg"],
    "RegressionMethod",
]
Points: TypeAlias = Union[NDArray[Any], "torch.Tensor", Sequence[Sequence[float]]]
ClassifierInducing: TypeAlias = Union[
    Literal["auto", "random", "kmeans", "per-class", "greedy", "spectrum"],
    Points,
    Sequence[Sequence[Sequence[float]]],
]
RegressorInducing: TypeAlias = Union[
    Literal["auto", "random", "kmeans", "greedy", "spectrum"], Points
]
ClassWeight: TypeAlias = Literal["balanced"] | Mapping[Any, float]


class Classifier(Protocol):
    """A classifier with the interface of scikit-learn."""

    def fit(self, X: Any, y: Any) -> Any: ...
    def predict_proba(self, X: Any) -> Any: ...


Ensemble: TypeAlias = Literal["auto", "trees"] | Classifier | Sequence[Classifier]
