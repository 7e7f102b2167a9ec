"""Check single arguments: numbers, names, devices, paths, callbacks.

An error names the valid values.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cavity.common.files import is_uri
from cavity.errors import BadOption

if TYPE_CHECKING:
    import torch

    from cavity.engine.training.callbacks import Callback

# of a field of a dataclass: how the argument of its name is read
Metadata = dict[str, Callable[[str, Any], Any]]
DTYPES = ("float32", "float64")
NOISE = 0.1  # where bounds leave the start open


def checked(
    check: Callable[..., Any], *limits: Any, optional: bool = False, **more: Any
) -> Metadata:
    """Declare how the argument with the field's name is read.

    `check(name, value, *limits)` reads it; `optional` allows None.
    """

    def read(name: str, value: Any) -> Any:
        if optional and value is None:
            return None

        return check(name, value, *limits, **more)

    return {"read": read}


def taken(reader: Callable[[Any], Any]) -> Metadata:
    """Declare how the argument with the field's name is read.

    `check(name, value, *limits)` reads it; `optional` allows None.
    """
    return {"read": lambda name, value: reader(value)}


AS_GIVEN = taken(lambda value: value)


def read_declared(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Read the arguments that the fields of a dataclass declare, by name."""
    declared = (
        each
        for each in getattr(kind, "__dataclass_fields__", {}).values()
        if each.metadata
    )
    return {
        each.name: each.metadata["read"](each.name, given[each.name])
        for each in declared
    }


def one_of(name: str, value: Any, valid: Any) -> Any:
    if not any(
        value is v or (isinstance(v, str) and isinstance(value, str) and value == v)
        for v in valid
    ):
        raise BadOption(
            f"{name}={value!r} is unknown; use one of {', '.join(map(repr, valid))}."
        )

    return value


def number(
    name: str, value: Any, low: float, high: float = math.inf, strict: bool = True
) -> float:
    """Return a finite real number above `low` (at or above it, unless `strict`)."""
    good = (
        not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
    )
    if not good or value < low or (strict and value == low) or value > high:
        raise BadOption(
            f"{name}={value!r} must be a number {'above' if strict else 'of at least'} "
            f"{low:g}"
            f"{f' and at most {high:g}' if high < math.inf else ''}."
        )

    return float(value)


def is_whole(value: Any) -> bool:
    """Return whether `value` is an integer of Python or NumPy; booleans do not count."""
    return not isinstance(value, bool) and isinstance(value, Integral)


def whole(name: str, value: Any, low: int) -> int:
    if not is_whole(value) or int(value) < low:
        raise BadOption(f"{name}={value!r} must be an integer of at least {low}.")

    return int(value)


def read_level(value: Any, name: str = "level") -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 < value < 1
    ):
        raise BadOption(
            f"{name}={value!r} must be a probability above 0 and below 1, such as 0.95."
        )

    return float(value)


def read_n_inducing(value: Any, automatic: bool = False) -> int | float | None:
    """Check `n_inducing`: an integer, or a fraction of the rows.

    If it is `automatic`, "auto" becomes None.
    """
    if automatic and isinstance(value, str) and value == "auto":
        return None
    if is_whole(value):
        return whole("n_inducing", value, 1)
    if (
        isinstance(value, bool)
        or not isinstance(value, Real)
        or not 0 < float(value) <= 1
    ):
        raise BadOption(
            f"n_inducing={value!r} must be an integer of at least 1, or a fraction of "
            f"the rows above 0 and at most 1."
        )

    return float(value)


def inducing_count(value: int | float, n_rows: float) -> int:
    if isinstance(value, int):
        return value

    return max(1, round(value * n_rows))


def read_noise(value: Any, learnt: bool) -> np.ndarray:
    """Check `noise`: one variance, or one per class.

    The number of classes is not known yet.
    """
    from cavity.engine.parameters import find_start

    start = value
    if value is not None:
        start = find_start(value, NOISE, "noise")
    try:
        noise = np.asarray(start, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError):
        noise = np.full(1, math.nan)

    if not (np.isfinite(noise) & (noise >= 0)).all():
        raise BadOption(
            f"noise={value!r} must be a finite variance of at least 0, or one per "
            f"class."
        )
    if learnt and (noise == 0).any():
        raise BadOption(
            "noise=0 cannot be learnt, because its logarithm is optimised: give a "
            "positive start, or leave 'noise' out of learn."
        )

    return noise


def resolve_device(value: Any) -> torch.device:
    """Return a torch device; "auto" is the GPU if there is one."""
    import torch

    if value == "auto":
        gpus = _count_gpus()
        # set by torchrun: a GPU for each rank
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if gpus > 1:
            return torch.device("cuda", local % gpus)

        return torch.device("cuda" if gpus else "cpu")

    try:
        device = torch.device(value)
    except (RuntimeError, TypeError):
        device = torch.device("meta")

    if device.type not in ("cpu", "cuda"):
        raise BadOption(
            f"device={value!r} is unknown; use 'auto', 'cpu', 'cuda' or 'cuda:1'."
        )
    if device.type == "cuda" and (device.index or 0) >= (gpus := _count_gpus()):
        seen = f"{gpus} GPUs, counted from 0," if gpus else "no GPU"
        raise BadOption(
            f"device={value!r}, but torch sees {seen} here; use device='cpu' or 'auto'."
        )

    return device


def _count_gpus() -> int:
    import torch

    if torch.cuda.is_available():
        return torch.cuda.device_count()

    return 0


def read_dtype(value: Any) -> torch.dtype:
    """Return the torch type of a name, or of a type of torch or NumPy."""
    import torch

    known = {
        name: (getattr(torch, name), np.dtype(name), np.dtype(name).type)
        for name in DTYPES
    }
    name = next(
        (n for n, kinds in known.items() if any(value is k for k in kinds)), value
    )
    return known[one_of("dtype", name, DTYPES)][0]


def read_ensemble(value: Any) -> Any:
    if isinstance(value, str):
        return one_of("ensemble", value, ("auto", "trees"))
    if value is None:
        return None

    single = hasattr(value, "fit") or not isinstance(
        value, Iterable
    )  # a forest of trees is iterable itself
    members = (value,) if single else tuple(value)
    for member in members:
        if (
            not hasattr(member, "fit")
            or not hasattr(member, "get_params")
            or isinstance(member, type)
        ):
            raise BadOption(
                f"ensemble has {member!r}, not a classifier of scikit-learn: give an "
                f"instance."
            )

        _check_storable(member)

    return members


def _check_storable(member: Any) -> None:
    """Raise BadOption, before anything is trained, if arrays cannot hold the classifier.

    Other ensembles of trees combine them in their own ways.
    """
    from sklearn.ensemble import (
        BaggingClassifier,
        ExtraTreesClassifier,
        HistGradientBoostingClassifier,
        RandomForestClassifier,
    )
    from sklearn.tree import DecisionTreeClassifier

    stored = (
        HistGradientBoostingClassifier,
        ExtraTreesClassifier,
        RandomForestClassifier,
        DecisionTreeClassifier,
        BaggingClassifier,
    )
    some_columns = isinstance(member, BaggingClassifier) and (
        member.max_features != 1.0 or member.bootstrap_features
    )
    if not isinstance(member, stored) or some_columns:
        names = ", ".join(kind.__name__ for kind in stored)
        raise BadOption(
            f"ensemble has {type(member).__name__}, which cannot be stored as arrays: "
            f"use one of {names}, whose trees see all columns."
        )


def read_class_weight(value: Any) -> Any:
    """Check `class_weight`; the classes are not known yet."""
    if isinstance(value, dict):
        if not all(
            isinstance(v, Real) and 0 <= float(v) < math.inf for v in value.values()
        ):
            raise BadOption(
                f"class_weight={value!r} must hold finite numbers that are not "
                f"negative."
            )
    elif value is not None and not (isinstance(value, str) and value == "balanced"):
        raise BadOption(
            f"class_weight={value!r} is unknown; use None, 'balanced', or a dict by "
            f"class."
        )

    return value


def read_order(value: Any) -> tuple[Any, ...] | None:
    """Check `order`, the class labels from lowest to highest."""
    if value is None:
        return None
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise BadOption(
            f"order={value!r:.80} must be a list of class labels from lowest to "
            "highest, such as ['low', 'mid', 'high']."
        )

    labels = tuple(np.asarray(value, dtype=object).tolist())
    twice = [label for label in labels if labels.count(label) > 1]
    if twice:
        raise BadOption(
            f"order={list(labels)!r:.200} names the class {twice[0]!r} twice: name "
            "each class once."
        )

    return labels


def read_verbose(value: Any) -> int:
    if value is None or isinstance(value, bool):
        return int(bool(value))

    return whole("verbose", value, 0)


def read_path(value: Any) -> Path | None:
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        raise BadOption(
            f"checkpoint={value!r} is not a path: use a text or a pathlib.Path."
        )
    if is_uri(value):
        raise BadOption(
            f"checkpoint={value!r} is a URI: name a file, in a folder that all ranks "
            f"share."
        )

    return Path(value)


def read_batch_size(value: Any) -> int | str | None:
    if isinstance(value, str) and value != "auto":
        raise BadOption(
            f"batch_size={value!r} is unknown; use 'auto', None for full batches, or "
            f"an integer."
        )
    if value is None or isinstance(value, str):
        return value

    return whole("batch_size", value, 1)


def read_callbacks(value: Any) -> tuple[Callback, ...]:
    from cavity.engine.training.callbacks import Callback

    if not isinstance(value, Iterable):
        raise BadOption(
            f"callbacks={value!r} is not a list: give a list of "
            f"cavity.callbacks.Callback."
        )

    callbacks = tuple(value)
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise BadOption(
                f"callbacks has {callback!r}, which is not a "
                f"cavity.callbacks.Callback: derive from it, or give an instance "
                "instead of the class."
            )

    return callbacks


def draw_seed(random_state: Any) -> int:
    """Draw a seed from the argument `random_state`: an integer, a RandomState, or None."""
    from sklearn.utils import check_random_state

    try:
        generator = check_random_state(random_state)
    except ValueError:
        raise BadOption(
            f"random_state={random_state!r:.60} must be a whole number of at least 0, a "
            "numpy RandomState, or None."
        ) from None

    return int(generator.randint(2**31 - 1))


def read_limit(value: Any) -> float | None:
    if value is None:
        return None

    return number("time_limit", value, 0.0)
