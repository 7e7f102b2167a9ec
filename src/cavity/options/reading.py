"""Read an estimator's arguments into a configuration, and refuse what is wrong before any row is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cavity.errors import BadOption
from cavity.kernels.base import check_kernel
from cavity.kernels.inducing import check_choice
from cavity.kernels.parameters import per_class
from cavity.options.configuration import ClassifierConfig, Config, RegressorConfig, choose_jitter
from cavity.options.library import read_method
from cavity.options.method import Method
from cavity.options.regression_methods import read_regression_method
from cavity.options.training import Training, check_regression, flatten, read_training
from cavity.options.value_checks import one_of, read_declared, read_n_inducing, read_noise

LEARN = ("kernel", "noise", "inducing", "epsilon")


def read_classifier(arguments: Mapping[str, Any]) -> ClassifierConfig:
    given = flatten(arguments)
    method = read_method(given["method"], "classification")
    learn = _read_learn(given["learn"], LEARN, method)
    common = _read_common(ClassifierConfig, given, method)
    schedule = common["schedule"]
    method.check_training(optimizer=common["optimizer"], schedule=schedule, damping=common["damping"])
    if schedule == "inner-exact" and (method.site_store != "own" or method.on_f):
        raise BadOption(
            f"schedule='inner-exact' differentiates through the sites of each row, which {method.argument} does not store: use "
            "method='ep', 'rep' or 'pep', or schedule='inner-approx'."
        )
    if not method.latent_noise:
        if not (isinstance(given["noise"], int | float) and given["noise"] in (0, Training.noise)):
            raise BadOption(
                f"noise={given['noise']!r} is not used by {method.argument}, whose logistic likelihood has its own noise: leave "
                "noise out, or use method='vi' with likelihood='softmax'."
            )
        learn -= {"noise"}
    if given["inducing"] is None:
        learn -= {"inducing"}
    noise = read_noise(given["noise"] if method.latent_noise else 0.0, "noise" in learn)
    return ClassifierConfig(**common, method=method, learn=learn, noise=noise)


def read_regressor(arguments: Mapping[str, Any]) -> RegressorConfig:
    check_regression(read_training(arguments["training"]))
    given = flatten(arguments)
    method = read_regression_method(given["method"])
    inducing = given["inducing"]
    is_free = inducing is None or (isinstance(inducing, str) and inducing == "auto")
    if method.inducing_from != "chosen" and not is_free:
        raise BadOption(
            f"inducing= is not used by {method.argument}, which chooses its points itself: leave it out."
        )
    common = _read_common(RegressorConfig, given, method)
    learn = _read_learn(given["learn"], LEARN[:-1], method)
    noise = per_class(read_noise(given["noise"], "noise" in learn), 1, "noise")
    if method.needs_noise and noise[0] == 0:
        raise BadOption(
            f"noise=0 leaves {method.argument} without a density for y: use a positive noise=, or method='exact' or 'fitc'."
        )
    if method.fixed_inducing or given["inducing"] is None:
        learn -= {"inducing"}
    return RegressorConfig(**common, method=method, learn=learn, noise=noise)


def _read_common(kind: type[Config], given: dict[str, Any], method: Method) -> dict[str, Any]:
    """Read the arguments that a configuration declares, and those that depend on the method."""
    if given["kernel"] is not None:
        check_kernel(given["kernel"])
    check_choice(given["inducing"])
    if given["resume"] and given["checkpoint"] is None:
        raise BadOption("resume=True needs checkpoint=, the file to continue from.")
    found = read_declared(kind, given)
    jitter = choose_jitter(given["jitter"], found["dtype"], method)
    n_inducing = read_n_inducing(given["n_inducing"], method.task == "classification")
    return found | {"jitter": jitter, "n_inducing": n_inducing, "arguments": given}


def _read_learn(value: Any, valid: tuple[str, ...], method: Method) -> frozenset[str]:
    """Read one name, or several, as a set."""
    single = isinstance(value, str) or not hasattr(value, "__iter__")
    names = () if value is None else (value,) if single else tuple(value)
    learn = frozenset(one_of("learn", name, valid) for name in names)
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
    return learn
