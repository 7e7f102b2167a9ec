"""The learnt hyper-parameters of a fit, by latent function and column."""

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

    part: str  # "RBF", or "noise"
    name: str
    column: str  # of a feature; empty if there is one value for all
    values: Floats  # [L]


@dataclass(frozen=True, eq=False)
class FitSummary(Tabular):
    """The learnt hyper-parameters of a fit.

    `print` shows one column per latent function.

    Attributes
    ----------
    facts : dict
        Method, inducing points per latent function, epochs and evidence.
    functions : tuple of str
        Latent functions: one per class; a single one for two classes and for a
        regressor.
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
        values = np.concatenate([part.values for part in self.learnt]).tolist()
        return names | {"function": self.functions * len(self.learnt), "value": values}

    def _shown(self) -> dict[str, Any]:
        of_function = zip(*(part.values for part in self.learnt), strict=True)
        shown = list(zip(self.functions, of_function, strict=True))[:MOST_FUNCTIONS]
        return self._names() | dict(shown)

    def _names(self) -> dict[str, Any]:
        return {
            name: [part[i] for part in self.learnt]
            for i, name in enumerate(Learnt._fields[:3])
        }

    def _heading(self) -> str:
        return ", ".join(
            f"{name} {format_cell(value)}" for name, value in self.facts.items()
        )


def summarise_fit(result: Result, method: str) -> FitSummary:
    prior = result.model.prior
    classes = result.classes
    L = prior.n_latent
    if classes is None or L == 1:
        functions: tuple[str, ...] = ("f",)
    else:
        functions = tuple(map(str, classes))
    points = {"inducing points": int(prior.Z.shape[-2])}
    evidence = None
    if not math.isnan(result.evidence):
        evidence = result.evidence
    facts = {
        "method": method,
        **points,
        "epochs": len(result.history),
        result.evidence_name: evidence,
    }
    if classes is None:
        values: Any = target_noise(result.model) * result.units[1] ** 2
    else:
        values = as_array(prior.noise)
    noise = Learnt("noise", "variance", "", _spread(values, L))
    features = list(map(name_column, result.features.encoder.names))
    return FitSummary(facts, functions, (noise, *_walk(prior.kernel, features, L)))


def _walk(kernel: Any, features: list[str], L: int) -> Iterator[Learnt]:
    """Yield the numbers of a kernel and of the kernels inside it."""
    kind = type(kernel).__name__
    if not hasattr(kernel, "get_params"):  # a module of the user's own
        for name, value in kernel.named_parameters():
            if value.numel() == 1:
                yield Learnt(kind, name, "", _spread(value.item(), L))
        return
    for name, value in kernel.get_params(deep=False).items():
        if hasattr(value, "get_params"):
            yield from _walk(value, features, L)
        elif not isinstance(value, bool) and isinstance(
            value, np.ndarray | float | int
        ):
            values = np.asarray(value, dtype=np.float64)
            if values.ndim == 2 and values.shape[1] == len(features):
                of = features
            else:
                of = [""]
            for j, feature in enumerate(of):
                yield Learnt(
                    kind,
                    name,
                    feature,
                    _spread(values[:, j] if values.ndim == 2 else values, L),
                )


def _spread(values: Any, L: int) -> Floats:
    """Return one value per latent function, [L]."""
    found = np.atleast_1d(np.asarray(values, dtype=np.float64))
    return np.repeat(found, L // len(found))
