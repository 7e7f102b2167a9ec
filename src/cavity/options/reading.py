"""Read an estimator's arguments into a configuration, and refuse what is wrong before any row is read."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any

from cavity.common.object_stores import Location, as_path
from cavity.errors import BadOption
from cavity.kernels import spectrum
from cavity.kernels.base import check_kernel
from cavity.kernels.inducing import check_choice
from cavity.kernels.parameters import per_class
from cavity.options.configuration import ClassifierConfig, RegressorConfig, choose_jitter
from cavity.options.method import Method, read_method
from cavity.options.regression_methods import read_regression_method
from cavity.options.training import check_regression, flatten, read_training
from cavity.options.value_checks import (
    number,
    one_of,
    read_dtype,
    read_n_inducing,
    read_noise,
    resolve_device,
    whole,
)
from cavity.training.callbacks import Callback

SHARE = ("auto", None, "prior", "kernel", "inducing", "both")
LEARN = ("kernel", "noise", "inducing", "frequencies", "epsilon")
EFFORTS = ("fast", "balanced", "best")
SCHEDULES = ("inner-approx", "inner-exact", "outer")
OPTIMIZERS = ("auto", "adam", "sign", "lbfgs")


def read_classifier(arguments: Mapping[str, Any]) -> ClassifierConfig:
    given = flatten(arguments)
    method = read_method(given["method"], "classification")
    learn = _read_learn(given["learn"], LEARN, method, given["inducing"])
    schedule = one_of("schedule", given["schedule"], SCHEDULES)
    optimizer = one_of("optimizer", given["optimizer"], OPTIMIZERS)
    common = _read_common(given, method)
    method.check_training(optimizer=optimizer, schedule=schedule, damping=common["damping"])
    if schedule == "inner-exact" and (method.site_store != "own" or method.on_f):
        raise BadOption(
            f"schedule='inner-exact' differentiates through the sites of each row, which {method.argument} does not store: use "
            "method='ep', 'rep' or 'pep', or schedule='inner-approx'."
        )
    if spectrum.asked(given["inducing"]) and not method.takes_spectrum:
        raise BadOption(
            f"inducing='spectrum' leaves no residual variance for {method.argument} to marginalise: use method='ep', or inducing "
            "points (inducing='auto')."
        )
    if not method.latent_noise:
        _refuse_noise(given["noise"], method)
        learn -= {"noise"}
    if given["inducing"] is None:
        learn -= {"inducing"}
    fraction = given["validation_fraction"]
    return ClassifierConfig(
        **common,
        method=method,
        learn=learn,
        optimizer=optimizer,
        noise=read_noise(given["noise"] if method.latent_noise else 0.0, "noise" in learn),
        share=one_of("share", given["share"], SHARE),
        schedule=schedule,
        class_weight=read_class_weight(given["class_weight"]),
        validation_fraction=None if fraction is None else number("validation_fraction", fraction, 0.0, 0.9),
        patience=whole("patience", given["patience"], 1),
        effort=one_of("effort", given["effort"], EFFORTS),
        calibration=one_of("calibration", given["calibration"], ("auto", None, "temperature")),
        ensemble=_read_ensemble(given["ensemble"]),
    )


def _read_ensemble(value: Any) -> Any:
    if isinstance(value, str):
        return one_of("ensemble", value, ("auto", "trees"))
    return None if value is None else _read_members(value)


def _read_members(value: Any) -> tuple[Any, ...]:
    single = hasattr(value, "fit") or not isinstance(value, Iterable)  # a forest of trees is iterable itself
    members = (value,) if single else tuple(value)
    for member in members:
        if not hasattr(member, "fit") or not hasattr(member, "get_params") or isinstance(member, type):
            raise BadOption(
                f"ensemble has {member!r}, which is not a classifier of scikit-learn: give an instance."
            )
    return members


def read_regressor(arguments: Mapping[str, Any]) -> RegressorConfig:
    check_regression(read_training(arguments["training"]))
    given = flatten(arguments)
    method = read_regression_method(given["method"])
    if spectrum.asked(given["inducing"]) and not method.takes_spectrum:
        raise BadOption(
            f"inducing='spectrum' leaves no residual variance, by which {method.argument} differs from other methods: use "
            "method='vi', which is exact for such features, or 'svi'."
        )
    if not method.uses_inducing and not (given["inducing"] is None or _is(given["inducing"], "auto")):
        raise BadOption(
            f"inducing= is not used by {method.argument}, which chooses its points itself: leave it out."
        )
    optimizer = one_of("optimizer", given["optimizer"], OPTIMIZERS)
    learn = _read_learn(given["learn"], LEARN[:-1], method, given["inducing"])
    noise = per_class(read_noise(given["noise"], "noise" in learn), 1, "noise")
    if method.needs_noise and noise[0] == 0:
        raise BadOption(
            f"noise=0 leaves {method.argument} without a density for y: use a positive noise=, or method='exact' or 'fitc'."
        )
    if method.fixed_inducing or given["inducing"] is None:
        learn -= {"inducing"}
    return RegressorConfig(
        **_read_common(given, method),
        method=method,
        learn=learn,
        optimizer=optimizer,
        noise=noise,
        normalize_y=bool(given["normalize_y"]),
    )


def _is(value: Any, name: str) -> bool:
    return isinstance(value, str) and value == name


def _read_common(given: dict[str, Any], method: Method) -> dict[str, Any]:
    kernel, dtype = given["kernel"], read_dtype(given["dtype"])
    if kernel is not None:
        check_kernel(kernel)
    check_choice(given["inducing"])
    if given["resume"] and given["checkpoint"] is None:
        raise BadOption("resume=True needs checkpoint=, the file to continue from.")
    return {
        "kernel": kernel,
        "n_inducing": read_n_inducing(given["n_inducing"], method.task == "classification"),
        "inducing": given["inducing"],
        "learning_rate": _optional(given, "learning_rate", lambda v: number("learning_rate", v, 0.0)),
        "damping": _optional(given, "damping", lambda v: number("damping", v, 0.0, 1.0)),
        "batch_size": _read_batch_size(given["batch_size"]),
        "max_epochs": _optional(given, "max_epochs", lambda v: whole("max_epochs", v, 1)),
        "tol": number("tol", given["tol"], 0.0, strict=False),
        "max_seconds": _optional(given, "max_seconds", lambda v: number("max_seconds", v, 0.0)),
        "jitter": choose_jitter(given["jitter"], dtype, method),
        "device": resolve_device(given["device"]),
        "dtype": dtype,
        "random_state": given["random_state"],
        "warm_start": bool(given["warm_start"]),
        "callbacks": _read_callbacks(given["callbacks"]),
        "checkpoint": _optional(given, "checkpoint", _read_path),
        "checkpoint_every": number("checkpoint_every", given["checkpoint_every"], 0.0, strict=False),
        "resume": bool(given["resume"]),
        "exchange": _read_exchange(given["exchange"]),
        "verbose": _read_verbose(given["verbose"]),
        "arguments": given,
    }


def _optional(given: dict[str, Any], name: str, check: Callable[[Any], Any]) -> Any:
    return None if given[name] is None else check(given[name])


def read_names(value: Any, valid: Iterable[str], argument: str) -> frozenset[str]:
    """Read one name, or several, as a set."""
    single = isinstance(value, str) or not hasattr(value, "__iter__")
    names = () if value is None else (value,) if single else tuple(value)
    for name in names:
        one_of(argument, name, valid)
    return frozenset(names)


def _read_learn(value: Any, valid: tuple[str, ...], method: Method, inducing: Any) -> frozenset[str]:
    """Read `learn`; "inducing" stands for frequencies where these are learnt in place of points."""
    learn = read_names(value, valid, "learn")
    if "epsilon" in learn and method.label_noise is None:
        raise BadOption(
            f"learn with 'epsilon' is not used by {method.argument}, whose likelihood has no epsilon: use method='rep', or "
            "method='vi' with likelihood='robust-max'."
        )
    if "epsilon" in learn and method.label_noise == 0:
        raise BadOption(
            "epsilon=0 cannot be learnt, because its log-odds are optimised: give a positive start, or leave 'epsilon' out of "
            "learn."
        )
    if spectrum.asked(inducing):
        return (learn - {"inducing", "frequencies"}) | ({"inducing"} if "frequencies" in learn else set())
    if "frequencies" in learn:
        raise BadOption(
            "learn with 'frequencies' is for inducing='spectrum'; inducing points are 'inducing'."
        )
    return learn


def _refuse_noise(noise: Any, method: Method) -> None:
    """The noise must be left at its default, or be 0."""
    if not (isinstance(noise, int | float) and noise in (0, 0.1)):
        raise BadOption(
            f"noise={noise!r} is not used by {method.argument}, whose logistic likelihood has its own noise: leave noise out, "
            "or use method='vi' with likelihood='softmax'."
        )


def read_class_weight(value: Any) -> Any:
    """Check `class_weight`; the classes are not known yet."""
    if isinstance(value, dict):
        good = (isinstance(v, Real) and 0 <= float(v) < math.inf for v in value.values())
        if not all(good):
            raise BadOption(f"class_weight={value!r} must hold finite numbers that are not negative.")
    elif value is not None and not _is(value, "balanced"):
        raise BadOption(
            f"class_weight={value!r} is unknown; use None, 'balanced', or a dict from class to weight."
        )
    return value


def _read_verbose(value: Any) -> int:
    return int(bool(value)) if value is None or isinstance(value, bool) else whole("verbose", value, 0)


def _read_path(value: Any) -> Location:
    if not isinstance(value, str | os.PathLike):
        raise BadOption(f"checkpoint={value!r} is not a path: use a text or a pathlib.Path.")
    return as_path(os.fspath(value))


def _read_batch_size(value: Any) -> int | str | None:
    if isinstance(value, str) and value != "auto":
        raise BadOption(f"batch_size={value!r} is unknown; use 'auto', None for full batches, or an integer.")
    return value if value is None or isinstance(value, str) else whole("batch_size", value, 1)


def _read_exchange(value: Any) -> int | str:
    if isinstance(value, str):
        return 1 if one_of("exchange", value, ("exact", "auto")) == "exact" else "auto"
    return whole("exchange", value, 1)


def _read_callbacks(value: Any) -> tuple[Callback, ...]:
    if not isinstance(value, Iterable):
        raise BadOption(f"callbacks={value!r} is not a list: give a list of cavity.callbacks.Callback.")
    callbacks = tuple(value)
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise BadOption(
                f"callbacks has {callback!r}, which is not a cavity.callbacks.Callback: derive from it, or give an instance "
                "instead of the class."
            )
    return callbacks
