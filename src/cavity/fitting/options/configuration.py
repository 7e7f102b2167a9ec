"""The arguments of an estimator as one frozen configuration.

It is checked before any row is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch

from cavity.engine.kernels.base import check_kernel, per_class
from cavity.engine.learning import is_path
from cavity.engine.parameters import Setting, is_learnt
from cavity.engine.training.callbacks import Callback
from cavity.errors import BadOption
from cavity.fitting.options import value_checks as checks
from cavity.fitting.options.library import method_names, read_method
from cavity.fitting.options.method import Method
from cavity.fitting.options.regression_methods import (
    RegressionMethod,
    read_regression_method,
)
from cavity.fitting.options.training import (
    Training,
    check_regression,
    flatten,
    read_training,
)
from cavity.fitting.options.value_checks import (
    AS_GIVEN,
    checked,
    number,
    one_of,
    read_declared,
    taken,
    whole,
)
from cavity.tables.inducing_points import CANDIDATES, check_choice, is_spectrum

LEARN = ("kernel", "noise", "inducing", "epsilon")
OPTIMIZERS = ("auto", "adam", "sign", "lbfgs")
REGRESSION_OPTIMIZERS = (*OPTIMIZERS, "newton", "gradient", "sag")
# relative; where Z = X nothing else separates the model from the exact one
EXACT_JITTER = 1e-8


@dataclass(frozen=True, kw_only=True)
class Config:
    """The arguments of an estimator, checked. Nothing in it depends on the rows."""

    owner: ClassVar[str]  # class of the estimator, for messages

    method: Method
    kernel: Any = field(metadata=AS_GIVEN)
    n_inducing: int | float | None  # None: chosen by the number of rows
    inducing: Any = field(metadata=AS_GIVEN)  # a name, None for every row, or an array
    noise: np.ndarray  # [1], or one per latent function
    learn: frozenset[str]
    optimizer: str = field(metadata=checked(one_of, OPTIMIZERS))
    learning_rate: float | None = field(metadata=checked(number, 0.0, optional=True))
    damping: float | None = field(metadata=checked(number, 0.0, 1.0, optional=True))
    batch_size: int | str | None = field(metadata=taken(checks.read_batch_size))
    max_epochs: int | None = field(metadata=checked(whole, 1, optional=True))
    tol: float = field(metadata=checked(number, 0.0, strict=False))
    max_seconds: float | None = field(metadata=checked(number, 0.0, optional=True))
    jitter: float  # relative to the kernel's variance
    device: torch.device = field(metadata=taken(checks.resolve_device))
    dtype: torch.dtype = field(metadata=taken(checks.read_dtype))
    random_state: Any = field(metadata=AS_GIVEN)
    warm_start: bool = field(metadata=taken(bool))
    callbacks: tuple[Callback, ...] = field(metadata=taken(checks.read_callbacks))
    checkpoint: Path | None = field(metadata=taken(checks.read_path))
    checkpoint_every: float = field(metadata=checked(number, 0.0, strict=False))
    resume: bool = field(metadata=taken(bool))
    verbose: int = field(metadata=taken(checks.read_verbose))
    arguments: dict[str, Any]  # as given, those of `training` beside the others
    effort: str = "balanced"  # only classifiers have others
    share: str | None = None
    schedule: str = "inner-approx"

    @property
    def spectral(self) -> bool:
        """Whether inducing values are in the frequency domain."""
        return is_spectrum(self.inducing)

    @property
    def noise_setting(self) -> Setting | None:
        """Bounds or prior of the noise, or that it is fixed; None for a number."""
        given = self.arguments["noise"]
        return given if isinstance(given, Setting) else None

    @property
    def jitter_backs_off(self) -> bool:
        """Whether jitter decreases with the noise, so that it does not count."""
        return (
            self.method.exact_jitter
            and self.arguments["jitter"] is None
            and self.dtype == torch.float64
        )

    @property
    def reads_whole_table(self) -> bool:
        return (
            self.schedule == "inner-exact"
            or self.method.in_memory
            or self.inducing is None
        )

    def in_float64(self) -> Self:
        """Return the same configuration in float64, with its default jitter."""
        jitter = choose_jitter(self.arguments["jitter"], torch.float64, self.method)
        return replace(self, dtype=torch.float64, jitter=jitter)

    def check_ranks(self, world: int) -> None:
        if world > 1 and (self.method.at_mode or self.schedule == "inner-exact"):
            self._refuse_parts(f"each of {world} ranks has only some")

    def check_source(self) -> None:
        """Refuse what rows that are not in memory cannot do."""
        if self.method.in_memory or self.schedule == "inner-exact":
            self._refuse_parts("a source does not hold them in memory")
        if self.inducing is None:
            raise every_row("inducing=None", "a source, whose rows are not in memory")

    def _refuse_parts(self, why: str) -> None:
        """Raise the error of an option that reads all rows at once."""
        what = "schedule='inner-exact'"
        instead = "schedule='inner-approx' or 'outer'"
        if self.method.in_memory:
            known = method_names(self.method.task).items()
            *names, last = (repr(name) for name, cls in known if not cls.in_memory)
            what = self.method.argument
            instead = f"method={', '.join(names)} or {last}"

        raise BadOption(
            f"{what} reads all rows at once; {why}: use {instead}, or an array in one "
            f"process."
        )

    def check_size(self, n_rows: int) -> None:
        """Raise BadOption for an inducing point at every row of a large table.

        It would take matrices of N² numbers.
        """
        exact = self.method.inducing_from == "rows"
        if (exact or self.inducing is None) and n_rows > CANDIDATES:
            raise every_row(
                self.method.argument if exact else "inducing=None", f"{n_rows:,} rows"
            )


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(Config):
    """The arguments of a GPClassifier."""

    owner = "GPClassifier"

    class_weight: Any = field(metadata=taken(checks.read_class_weight))
    validation_fraction: float | None = field(
        metadata=checked(number, 0.0, 0.9, optional=True)
    )
    patience: int = field(metadata=checked(whole, 1))
    calibration: str | None = field(
        metadata=checked(one_of, ("auto", None, "temperature"))
    )
    ensemble: Any = field(
        metadata=taken(checks.read_ensemble)
    )  # None, a name, or classifiers to pool with
    effort: str = field(metadata=checked(one_of, ("fast", "balanced")))
    share: str | None = field(
        metadata=checked(one_of, ("auto", None, "prior", "kernel", "inducing", "both"))
    )
    schedule: str = field(
        metadata=checked(one_of, ("inner-approx", "inner-exact", "outer"))
    )
    # labels from lowest to highest, if classes are ordered
    order: tuple[Any, ...] | None = field(metadata=taken(checks.read_order))

    def check_source(self) -> None:
        """Refuse what rows that are not in memory cannot do."""
        super().check_source()
        if self.ensemble is not None and self.ensemble != "auto":
            raise BadOption(
                "ensemble= fits other classifiers to a table in memory, which a source "
                "is not: leave it out, or give an array."
            )
        if self.validation_fraction is not None:
            raise BadOption(
                f"validation_fraction={self.validation_fraction:g} holds out rows of a "
                f"table in memory: for a source give your "
                "own rows, fit(..., eval_set=(X_val, y_val))."
            )


@dataclass(frozen=True, kw_only=True)
class RegressorConfig(Config):
    """The arguments of a GPRegressor."""

    owner = "GPRegressor"

    method: RegressionMethod
    optimizer: str = field(metadata=checked(one_of, REGRESSION_OPTIMIZERS))
    normalize_y: bool = field(metadata=taken(bool))


def choose_jitter(value: Any, dtype: torch.dtype, method: Method) -> float:
    """Return the jitter relative to the kernel's variance; None: the default."""
    if value is not None:
        return number("jitter", value, 0.0, 1.0, strict=False)
    if dtype != torch.float64:
        return 1e-4

    return EXACT_JITTER if method.exact_jitter else 1e-6


def every_row(what: str, where: str) -> BadOption:
    return BadOption(
        f"{what} has an inducing point at every row, which is too much for {where}: "
        f"use n_inducing=, and "
        "inducing='auto' or 'kmeans'."
    )


def read_classifier(arguments: Mapping[str, Any]) -> ClassifierConfig:
    given = flatten(arguments)
    method = read_method(given["method"], "classification")
    learn = _read_learn(given["learn"], LEARN, method)
    common = _read_common(ClassifierConfig, given, method)
    schedule = common["schedule"]
    method.check_training(
        optimizer=common["optimizer"], schedule=schedule, damping=common["damping"]
    )
    if schedule == "inner-exact" and (method.site_store != "own" or method.on_f):
        raise BadOption(
            f"schedule='inner-exact' differentiates through the sites of each row, "
            f"which {method.argument} does not store: use "
            "method='ep', 'rep' or 'pep', or schedule='inner-approx'."
        )

    if common["order"] is not None and not method.takes_order:
        raise BadOption(
            f"order= brings the likelihood of ordered classes, which {method.argument} "
            "does not take: use method='auto', 'ep' or 'sep' without likelihood=."
        )

    if not method.latent_noise:
        if not (
            isinstance(given["noise"], int | float)
            and given["noise"] in (0, Training.noise)
        ):
            raise BadOption(
                f"noise={given['noise']!r} is not used by {method.argument}, whose "
                f"logistic likelihood has its own noise: leave "
                "noise out, or use method='vi' with likelihood='softmax'."
            )

        learn -= {"noise"}

    if given["inducing"] is None or is_spectrum(given["inducing"]):
        learn -= {"inducing"}
    if not is_learnt(given["noise"]):
        learn -= {"noise"}
    noise = checks.read_noise(
        given["noise"] if method.latent_noise else 0.0, "noise" in learn
    )
    return ClassifierConfig(**common, method=method, learn=learn, noise=noise)


def read_regressor(arguments: Mapping[str, Any]) -> RegressorConfig:
    check_regression(read_training(arguments["training"]))
    given = flatten(arguments)
    method = read_regression_method(given["method"])
    inducing = given["inducing"]
    is_free = inducing is None or (isinstance(inducing, str) and inducing == "auto")
    if method.inducing_from != "chosen" and not is_free:
        raise BadOption(
            f"inducing= is not used by {method.argument}, which chooses its own: leave "
            f"it out."
        )

    common = _read_common(RegressorConfig, given, method)
    method.check_training(
        optimizer=common["optimizer"],
        schedule=common.get("schedule", Training.schedule),
        damping=common["damping"],
    )
    learn = _read_learn(given["learn"], LEARN[:-1], method)
    if not is_learnt(given["noise"]):
        learn -= {"noise"}
    noise = per_class(checks.read_noise(given["noise"], "noise" in learn), 1, "noise")
    if method.needs_noise and noise[0] == 0:
        raise BadOption(
            f"noise=0 leaves {method.argument} without a density for y: use a positive "
            f"noise=, or method='exact' or 'fitc'."
        )

    if method.fixed_inducing or inducing is None or is_spectrum(inducing):
        learn -= {"inducing"}
    return RegressorConfig(**common, method=method, learn=learn, noise=noise)


def _read_common(
    kind: type[Config], given: dict[str, Any], method: Method
) -> dict[str, Any]:
    """Read the declared arguments, and the ones that depend on the method."""
    if given["kernel"] is not None:
        check_kernel(given["kernel"])
    check_choice(given["inducing"])
    if is_spectrum(given["inducing"]) and not method.takes_spectrum:
        instead = "'vi' or 'svi'" if method.task == "regression" else "'ep' or 'vi'"
        raise BadOption(
            f"inducing='spectrum' has no inducing points, which {method.argument} "
            f"needs: use method={instead}, or inducing='auto'."
        )
    if given["resume"] and given["checkpoint"] is None:
        raise BadOption("resume=True needs checkpoint=, the file to continue from.")

    found = read_declared(kind, given)
    jitter = choose_jitter(given["jitter"], found["dtype"], method)
    n_inducing = checks.read_n_inducing(
        given["n_inducing"], method.task == "classification"
    )
    return found | {"jitter": jitter, "n_inducing": n_inducing, "arguments": given}


def _read_learn(value: Any, valid: tuple[str, ...], method: Method) -> frozenset[str]:
    """Read one name, or several, as a set."""
    single = isinstance(value, str) or not hasattr(value, "__iter__")
    names: Any
    if value is None:
        names = ()
    elif single:
        names = (value,)
    else:
        names = value

    learn = frozenset(
        name if is_path(name) else one_of("learn", name, valid) for name in names
    )
    if "epsilon" in learn and method.label_noise is None:
        raise BadOption(
            f"learn with 'epsilon' is not used by {method.argument}, whose likelihood "
            f"has no epsilon: use method='rep', or "
            "method='vi' with likelihood='robust-max'."
        )
    if "epsilon" in learn and method.label_noise == 0:
        raise BadOption(
            "epsilon=0 cannot be learnt, because its log-odds are optimised: give a "
            "positive start, or leave 'epsilon' out of "
            "learn."
        )

    return learn
