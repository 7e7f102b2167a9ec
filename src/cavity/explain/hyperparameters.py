"""The hyper-parameters of a fit as a table, and as the vector θ that evidence takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit
from torch import nn

from cavity.common.tabular import Tabular
from cavity.common.text_tables import name_column
from cavity.common.types import Flags, Floats
from cavity.engine.kernels import Kernel
from cavity.engine.kernels.prior import Prior
from cavity.engine.likelihoods import Likelihood
from cavity.prediction.model import as_array
from cavity.prediction.result import Result
from cavity.prediction.targets import target_noise
from cavity.tables.columns.feature_groups import group_features
from cavity.tables.validation import Features

LOG = "log_"


@dataclass(frozen=True, eq=False)
class HyperParameters(Tabular):
    """Hyper-parameters of a fit, one per line, in the units of the user's columns.

    Inducing points are not listed: see `inducing_points_`.

    Attributes
    ----------
    names : tuple of str
        "noise", parameters of the kernel such as "kernel__lengthscale" or
        "kernel__k1__variance", then those of the likelihood.
    classes : tuple
        Class whose latent function has the value. Empty if the functions share it, or
        if there is a single one.
    columns : tuple of str
        Column of a lengthscale; empty for other parameters.
    values : ndarray of shape (n_parameters,)
        Values.
    learnt : ndarray of shape (n_parameters,), bool
        Whether the fit learnt the value.
    theta : ndarray of shape (n_learnt,)
        Learnt values in the order of the table, as `log_marginal_likelihood` takes
        them: logarithms; log-odds of a share of random labels; parameters of a torch
        module of your own as they are.
    """

    names: tuple[str, ...]
    classes: tuple[Any, ...]
    columns: tuple[str, ...]
    values: Floats
    learnt: Flags
    theta: Floats

    def _columns(self) -> dict[str, Any]:
        return {
            "name": self.names,
            "class": self.classes,
            "column": self.columns,
            "value": self.values.tolist(),
            "status": ["learnt" if learnt else "fixed" for learnt in self.learnt],
        }

    def _heading(self) -> str:
        return f"{len(self.theta)} of {len(self.values)} hyper-parameters learnt"


class Entry(NamedTuple):
    """One number."""

    name: str
    of: Any  # class
    column: str
    value: float
    step: float  # what θ holds: the engine's value, but for a constant
    learnt: bool


def list_hyperparameters(result: Result) -> HyperParameters:
    """List the hyper-parameters in the order of the engine's θ."""
    found = [*_list_prior(result), *_list_likelihood(result)]
    return HyperParameters(
        names=tuple(entry.name for entry in found),
        classes=tuple(entry.of for entry in found),
        columns=tuple(entry.column for entry in found),
        values=np.array([entry.value for entry in found]),
        learnt=np.array([entry.learnt for entry in found], dtype=bool),
        theta=np.array([entry.step for entry in found if entry.learnt]),
    )


def _list_prior(result: Result) -> Iterator[Entry]:
    """Yield the noise of the latent functions and the parameters of the kernel."""
    prior = result.model.prior
    if result.classes is not None and not prior.learn_noise:
        noise = as_array(prior.noise)
        yield from _spread(result, "noise", noise[:, None], noise[:, None], False)

    for path, parameter in prior.named_parameters():
        owner, _, last = path.rpartition(".")
        module = prior.get_submodule(owner)
        learnt = parameter.requires_grad
        step = as_array(parameter)
        if path == "inducing":
            continue
        if not (isinstance(module, Kernel | Prior) and last.startswith(LOG)):
            yield from _list_raw(path.replace(".", "__"), step, learnt)
            continue

        columns: Sequence[str] = ("",)
        if step.ndim == 2:
            columns, unit = _name_columns(module, last, result.features)
            step = step + np.log(unit)
        step = step.reshape(len(step), -1)
        # as `set_params` writes it
        name = "__".join(filter(None, [*owner.split("."), last.removeprefix(LOG)]))
        yield from _spread(result, name, step, np.exp(step), learnt, columns)


def _spread(
    result: Result,
    name: str,
    step: Floats,
    value: Floats,
    learnt: bool,
    columns: Sequence[str] = ("",),
) -> Iterator[Entry]:
    """Yield the entries of an array [L K], of L latent functions and K columns."""
    classes: Sequence[Any] = ("",)
    if len(step) > 1 and result.classes is not None:
        classes = result.classes.tolist()
    for l, of in enumerate(classes):
        for k, column in enumerate(columns):
            yield Entry(name, of, column, float(value[l, k]), float(step[l, k]), learnt)


def _list_raw(name: str, values: Floats, learnt: bool) -> Iterator[Entry]:
    """Yield the numbers of an array whose axes are not known."""
    for place in np.ndindex(values.shape):
        title = f"{name}{list(place)}" if values.size > 1 else name
        value = float(values[place])
        yield Entry(title, "", "", value, value, learnt)


def _name_columns(
    kernel: Any, parameter: str, features: Features
) -> tuple[list[str], Floats]:
    """Return the column and the unit of each value of a parameter per column.

    Features of one column, such as the levels of a category, share a lengthscale.
    """
    unit = as_array(kernel.unit)
    if hasattr(kernel, "units_of"):
        unit = kernel.units_of(parameter.removeprefix(LOG))
    names = list(map(name_column, features.encoder.names))
    seen = getattr(kernel, "index", None)
    if seen is not None:  # a kernel of some columns
        names = [names[j] for j in as_array(seen).astype(int)]
    if kernel.group is None:
        return names, unit

    group = as_array(kernel.group).astype(int)
    _, first, counts = np.unique(group, return_index=True, return_counts=True)
    prepare = features.preparation
    if prepare is not None:
        _, owner = group_features(prepare.columns_)
        places = np.arange(len(owner))
        if seen is not None:
            places = as_array(seen).astype(int)
        for j, count in zip(first, counts, strict=True):
            if count > 1:
                names[j] = name_column(prepare.inputs[owner[places[j]]])

    return [names[j] for j in first], unit[first]


def _list_likelihood(result: Result) -> Iterator[Entry]:
    """Yield the noise of targets, the share of random labels, or what else there is."""
    likelihood = result.model.likelihood
    learnt = list(likelihood.parameters)
    if not learnt and result.classes is None:
        noise = target_noise(result.model) * result.units[1] ** 2
        yield Entry("noise", "", "", noise, noise, False)
    if not learnt and likelihood.epsilon is not None:
        epsilon = float(likelihood.epsilon)
        yield Entry("epsilon", "", "", epsilon, epsilon, False)

    for number, parameter in enumerate(learnt):
        name = _find_name(likelihood, parameter) or f"likelihood__{number}"
        step = as_array(parameter)
        if name == "log_noise":
            step = step + 2 * np.log(result.units[1])
            yield Entry("noise", "", "", float(np.exp(step[0])), float(step[0]), True)
        elif name == "log_odds":
            yield Entry("epsilon", "", "", float(expit(step[0])), float(step[0]), True)
        else:
            yield from _list_raw(name, step, True)


def _find_name(likelihood: Likelihood, parameter: nn.Parameter) -> str | None:
    """Return the attribute of a likelihood that holds a parameter."""
    attributes = vars(likelihood).items()
    return next((name for name, value in attributes if value is parameter), None)
