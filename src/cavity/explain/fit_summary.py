"""Learnt hyper-parameters of a fit, by latent function and column."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cavity.common.tabular import Tabular, format_cell
from cavity.common.text_tables import name_column
from cavity.common.types import Floats
from cavity.prediction.model import as_array
from cavity.prediction.result import Result
from cavity.prediction.targets import target_noise

MOST_FUNCTIONS = 8  # latent functions that `print` shows


class Learnt(NamedTuple):
    """A hyper-parameter of all latent functions."""

    part: str  # kernel, such as "RBF", or "noise"
    name: str
    column: str  # empty if the features share one value
    values: Floats  # [L]


@dataclass(frozen=True, eq=False)
class FitSummary(Tabular):
    """Learnt hyper-parameters of a fit; `print` shows one column per latent function.

    Attributes
    ----------
    facts : dict
        Method, number of inducing points per latent function, number of epochs, and
        evidence.
    functions : tuple of str
        Latent functions: one per class, or a single one for two classes and for
        regressors.
    learnt : tuple of Learnt
        Hyper-parameters with their values, in the units of the features.
    """

    facts: dict[str, Any]
    functions: tuple[str, ...]
    learnt: tuple[Learnt, ...]

    def _columns(self) -> dict[str, Any]:
        L = len(self.functions)
        names = {
            name: np.repeat(column, L).tolist()
            for name, column in self._names().items()
        }
        values = np.concatenate([each.values for each in self.learnt]).tolist()
        return names | {"function": self.functions * len(self.learnt), "value": values}

    def _shown(self) -> dict[str, Any]:
        values = np.column_stack([each.values for each in self.learnt])  # [L learnt]
        shown = self._names()
        for function, row in list(zip(self.functions, values, strict=True))[
            :MOST_FUNCTIONS
        ]:
            shown[function] = row

        return shown

    def _names(self) -> dict[str, Any]:
        return {
            "part": [each.part for each in self.learnt],
            "name": [each.name for each in self.learnt],
            "column": [each.column for each in self.learnt],
        }

    def _heading(self) -> str:
        return ", ".join(
            f"{name} {format_cell(value)}" for name, value in self.facts.items()
        )


def summarise_fit(result: Result, method: str) -> FitSummary:
    """Collect the hyper-parameters of a fit, in the user's units."""
    prior = result.model.prior
    classes = result.classes
    L = prior.n_latent
    functions: tuple[str, ...] = ("f",)
    if classes is not None and L > 1:
        functions = tuple(map(str, classes))

    facts = {
        "method": method,
        "inducing points": int(prior.Z.shape[-2]),
        "epochs": len(result.history),
        result.evidence_name: None if math.isnan(result.evidence) else result.evidence,
    }

    variance: Any
    if classes is None:
        _, scale = result.units
        variance = target_noise(result.model) * scale**2
    else:
        variance = as_array(prior.noise)

    noise = Learnt("noise", "variance", "", _spread(variance, L))
    features = list(map(name_column, result.features.encoder.names))
    return FitSummary(facts, functions, (noise, *_walk(prior.kernel, features, L)))


def _walk(kernel: Any, features: list[str], L: int) -> Iterator[Learnt]:
    """Yield the numbers of a kernel and of the kernels inside it."""
    kind = type(kernel).__name__
    if not hasattr(kernel, "get_params"):  # a user's torch module
        for name, value in kernel.named_parameters():
            if value.numel() == 1:
                yield Learnt(kind, name, "", _spread(value.item(), L))
        return

    index = getattr(kernel, "index", None)
    if index is not None:
        features = [features[j] for j in index]
    for name, value in kernel.get_params(deep=False).items():
        if hasattr(value, "start"):  # `engine.parameters.Setting`, without torch
            value = np.asarray(value)
        if name == "columns":
            continue
        if hasattr(value, "get_params"):
            yield from _walk(value, features, L)
            continue
        if isinstance(value, bool) or not isinstance(value, np.ndarray | float | int):
            continue

        values = np.asarray(value, dtype=np.float64)
        if values.ndim < 2:
            yield Learnt(kind, name, "", _spread(values, L))
            continue

        columns = features if values.shape[1] == len(features) else [""]
        for j, column in enumerate(columns):
            yield Learnt(kind, name, column, _spread(values[:, j], L))


def _spread(values: Any, L: int) -> Floats:
    """Return one value per latent function, [L]."""
    found = np.atleast_1d(np.asarray(values, dtype=np.float64))
    return np.repeat(found, L // len(found))
