"""Likelihoods in model files: their class by name, their arguments, and their learnt values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cavity.errors import BadFile
from cavity.likelihoods import LIKELIHOODS, Likelihood, Logistic
from cavity.options import Method
from cavity.saving.serialize import Unpacking


def likelihood_tensors(likelihood: Likelihood) -> dict[str, Tensor]:
    return {f"factor.{name}": value for name, value in likelihood.state().items()}


def restore_likelihood(
    tensors: dict[str, Tensor],
    meta: dict[str, Any],
    method: Method,
    n_classes: int | None,
    dtype: torch.dtype,
) -> Likelihood:
    """Make the likelihood of a file; `n_classes` is None for a regressor."""
    if "likelihood" in meta:
        found: Any = Unpacking(tensors).unpack(meta["likelihood"])
        if not isinstance(found, Likelihood):
            raise BadFile("the likelihood is not one.")
        made: Likelihood = found
    elif n_classes is None:
        made = method.make_likelihood(1, frozenset({"noise"} if meta["learnt noise"] else ()))
    else:
        made = _of_format_1(str(meta["factor"]), method, n_classes)
    if n_classes is not None:
        _check_classes(made, n_classes)
    state = {name.removeprefix("factor."): t for name, t in tensors.items() if name.startswith("factor.")}
    if method.needs_noise and not state:
        raise BadFile(f"the file lacks the noise that {method.argument} needs.")
    made.load_state(state, dtype)
    return made


def _of_format_1(name: str, method: Method, n_classes: int) -> Likelihood:
    """Make the likelihood that a file of format 1 names; its other arguments are in the state or in the method."""
    if name not in list(LIKELIHOODS):
        raise BadFile(f"the likelihood {name!r:.40} is unknown; known are {', '.join(LIKELIHOODS)}.")
    kind: Any = LIKELIHOODS[name]
    arguments = () if kind.two_classes else (n_classes,)
    made: Likelihood = kind(method.predictive == "probit") if issubclass(kind, Logistic) else kind(*arguments)
    return made


def _check_classes(likelihood: Likelihood, n_classes: int) -> None:
    if likelihood.n_classes is None:
        likelihood.n_classes = n_classes
    if likelihood.n_classes != n_classes or likelihood.two_classes != (n_classes == 2):
        raise BadFile(f"the likelihood {type(likelihood).__name__} does not fit {n_classes} classes.")
