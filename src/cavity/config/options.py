"""Read an estimator's arguments into one frozen configuration, before any row is read; complete it for a table's size."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch

from cavity import spectrum
from cavity.config.methods import Method, method_names, read_method
from cavity.config.regression_methods import RegressionMethod, read_regression_method
from cavity.config.values import (
    is_whole,
    noise_values,
    number,
    one_of,
    read_dtype,
    read_jitter,
    read_n_inducing,
    read_noise,
    resolve_device,
    whole,
)
from cavity.errors import BadOption
from cavity.inducing import CANDIDATES, check_choice
from cavity.kernels.base import check_kernel
from cavity.training.callbacks import Callback

SHARE = ("auto", None, "prior", "kernel", "inducing", "both")
LEARN = ("kernel", "noise", "inducing", "frequencies", "epsilon")
SCHEDULES = ("inner-approx", "inner-exact", "outer")
OPTIMIZERS = ("auto", "adam", "sign", "lbfgs")
REGRESSION_OPTIMIZERS = (*OPTIMIZERS, "newton", "gradient", "sag")
FULL_BATCH_OPTIMIZERS = ("sign", "lbfgs", "newton", "gradient")

BATCH_BYTES = 128 << 20  # of one C × M × batch array
LEAST_M = 64  # below, a row's sites and moments take more than its projection
FULL_BATCH_ROWS = 1000
BATCH_ROWS = (200, 1000)  # between these, a sixth of the rows
PLANNED_STEPS = (600, 2000)  # between these, growing with the number of rows
BATCH_EPOCHS = 500
RECOMMENDED_EPOCHS = 200  # of method="auto" on full batches; more epochs predict no better
SWEEPS = 10_000
EXACT_JITTER = 1e-8  # relative; where Z = X nothing else separates the model from the exact one


@dataclass(frozen=True, kw_only=True)
class Config:
    """The arguments of an estimator, checked. Nothing in it depends on the rows."""

    owner: ClassVar[str]  # class of the estimator, for messages

    method: Method
    kernel: Any
    n_inducing: int | float
    inducing: Any  # a name, None for every row, or an array
    noise: np.ndarray  # [1], or one per latent function
    learn: frozenset[str]
    optimizer: str
    learning_rate: float | None
    damping: float | None
    batch_size: int | str | None
    max_epochs: int | None
    tol: float
    max_seconds: float | None
    jitter: float
    device: torch.device
    dtype: torch.dtype
    random_state: Any
    warm_start: bool
    callbacks: tuple[Callback, ...]
    checkpoint: Path | None
    checkpoint_every: float
    resume: bool
    verbose: int
    arguments: dict[str, Any]  # as given
    share: str | None = None
    schedule: str = "inner-approx"

    @property
    def spectral(self) -> bool:
        """Whether features of the kernel's spectrum stand in for inducing points."""
        return spectrum.asked(self.inducing)

    @property
    def reads_whole_table(self) -> bool:
        """Whether every row must be in memory."""
        return self.schedule == "inner-exact" or self.method.in_memory or self.inducing is None

    def in_float64(self) -> Self:
        """Return the same configuration in float64; the default jitter depends on the type."""
        jitter = _choose_jitter(self.arguments["jitter"], torch.float64, self.method)
        return replace(self, dtype=torch.float64, jitter=jitter)

    def check_ranks(self, world: int) -> None:
        """Refuse what several processes cannot do."""
        if world > 1 and (self.schedule == "inner-exact" or self.method.at_mode):
            what = self.method.argument if self.method.at_mode else "schedule='inner-exact'"
            raise BadOption(
                f"{what} differentiates through all rows at once, and each of {world} ranks has only some: use "
                "schedule='inner-approx' or 'outer' of method='ep', or a single process."
            )

    def check_size(self, n_rows: int) -> None:
        """Refuse an inducing point at every row of a large table: it takes matrices of N² numbers."""
        exact = self.method.inducing_from == "rows"
        if (exact or self.inducing is None) and n_rows > CANDIDATES:
            raise every_row(self.method.argument if exact else "inducing=None", f"{n_rows:,} rows")


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(Config):
    """The arguments of a GPClassifier."""

    owner = "GPClassifier"

    class_weight: Any
    validation_fraction: float | None
    patience: int

    def check_source(self, numbered: bool) -> None:
        """Refuse what rows that are not in memory cannot do; `numbered`: a row has the same number in every pass."""
        self.check_passing_rows(numbered)
        if self.validation_fraction is not None:
            raise BadOption(
                f"validation_fraction={self.validation_fraction:g} holds out rows of a table in memory: for a source give your "
                "own rows, callbacks=[cavity.callbacks.Validation(X, y)]."
            )

    def check_passing_rows(self, numbered: bool) -> None:
        """Refuse what needs rows again that pass by, in a source or in calls of `partial_fit`."""
        method = self.method.resolve(numbered)
        if method.site_store == "own" and not numbered:
            raise BadOption(
                f"{method.argument} stores sites per row, but rows of an iterable have no numbers to find them by: use "
                "method='sep', method=REP(sites='tied') or method='vi'; or write the rows to Parquet or .npy files."
            )
        if method.at_mode or self.schedule == "inner-exact":
            what, instead = (
                (method.argument, "method='ep', 'sep', 'rep', 'pep' or 'vi'")
                if method.at_mode
                else ("schedule='inner-exact'", "schedule='inner-approx' or 'outer'")
            )
            raise BadOption(
                f"{what} differentiates through all rows at once, which a source does not hold in memory: use {instead}, or give "
                "the table as an array."
            )
        if self.inducing is None:
            raise every_row("inducing=None", "a source, whose rows are not in memory")


@dataclass(frozen=True, kw_only=True)
class RegressorConfig(Config):
    """The arguments of a GPRegressor."""

    owner = "GPRegressor"

    method: RegressionMethod
    normalize_y: bool

    def check_source(self) -> None:
        """Refuse what rows that are not in memory cannot do."""
        if self.method.in_memory:
            raise BadOption(
                f"{self.method.argument} reads rows again that a source does not hold in memory: use method='svi' or 'vi', or "
                "give the table as an array."
            )
        if self.inducing is None:
            raise BadOption(
                "inducing=None has a point at every row, and a source may have any number: use n_inducing=."
            )


def every_row(what: str, where: str) -> BadOption:
    """Say that a point at every row is too much."""
    return BadOption(
        f"{what} has an inducing point at every row, which is too much for {where}: use n_inducing=, and "
        "inducing='auto' or 'kmeans'."
    )


@dataclass(frozen=True)
class Options:
    """A configuration completed for a table of known size."""

    config: Config
    method: Method  # never "auto"
    share_kernel: bool
    share_inducing: bool
    share_prior: bool
    recommended: bool
    schedule: str
    optimizer: str
    rate: float
    final_rate: float
    batch_size: int | None
    chunk: int
    max_epochs: int
    planned: bool  # the number of epochs is the library's choice

    @property
    def learn(self) -> frozenset[str]:
        return self.config.learn

    @property
    def device(self) -> torch.device:
        return self.config.device

    @property
    def dtype(self) -> torch.dtype:
        return self.config.dtype


def read_classifier(arguments: Mapping[str, Any]) -> ClassifierConfig:
    """Check the arguments of a GPClassifier."""
    given = dict(arguments)
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
    )


def read_regressor(arguments: Mapping[str, Any]) -> RegressorConfig:
    """Check the arguments of a GPRegressor."""
    given = dict(arguments)
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
    optimizer = one_of("optimizer", given["optimizer"], REGRESSION_OPTIMIZERS)
    _check_regression_optimizer(method, optimizer)
    learn = _read_learn(given["learn"], LEARN[:-1], method, given["inducing"])
    noise = noise_values(read_noise(given["noise"], "noise" in learn), 1)
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
    """Check the arguments that both estimators have in common."""
    kernel, dtype = given["kernel"], read_dtype(given["dtype"])
    if kernel is not None:
        check_kernel(kernel)
    check_choice(given["inducing"])
    if given["resume"] and given["checkpoint"] is None:
        raise BadOption("resume=True needs checkpoint=, the file to continue from.")
    return {
        "kernel": kernel,
        "n_inducing": read_n_inducing(given["n_inducing"]),
        "inducing": given["inducing"],
        "learning_rate": _optional(given, "learning_rate", lambda v: number("learning_rate", v, 0.0)),
        "damping": _optional(given, "damping", lambda v: number("damping", v, 0.0, 1.0)),
        "batch_size": _read_batch_size(given["batch_size"]),
        "max_epochs": _optional(given, "max_epochs", lambda v: whole("max_epochs", v, 1)),
        "tol": number("tol", given["tol"], 0.0, strict=False),
        "max_seconds": _optional(given, "max_seconds", lambda v: number("max_seconds", v, 0.0)),
        "jitter": _choose_jitter(given["jitter"], dtype, method),
        "device": resolve_device(given["device"]),
        "dtype": dtype,
        "random_state": given["random_state"],
        "warm_start": bool(given["warm_start"]),
        "callbacks": _read_callbacks(given["callbacks"]),
        "checkpoint": _optional(given, "checkpoint", _read_path),
        "checkpoint_every": number("checkpoint_every", given["checkpoint_every"], 0.0, strict=False),
        "resume": bool(given["resume"]),
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


def _check_regression_optimizer(method: Method, optimizer: str) -> None:
    if optimizer == "newton" and not method.settles:
        raise BadOption(
            f"optimizer='newton' needs the best q at every step of the hyper-parameters, which {method.argument} does not "
            "compute: use method='vi', 'exact' or 'fitc', or optimizer='lbfgs'."
        )
    if optimizer in ("gradient", "sag") and method.site_store != "free":
        raise BadOption(
            f"optimizer={optimizer!r} steps the mean and Cholesky factor of q: use method=SVGP(q_update='gradient'), or "
            "optimizer='lbfgs' or 'adam'."
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


def _choose_jitter(value: Any, dtype: torch.dtype, method: Method) -> float:
    exact = value is None and method.exact_jitter and dtype == torch.float64
    return EXACT_JITTER if exact else read_jitter(value, dtype)


def _read_verbose(value: Any) -> int:
    return int(bool(value)) if value is None or isinstance(value, bool) else whole("verbose", value, 0)


def _read_path(value: Any) -> Path:
    if not isinstance(value, str | os.PathLike):
        raise BadOption(f"checkpoint={value!r} is not a path: use a text or a pathlib.Path.")
    return Path(value)


def _read_batch_size(value: Any) -> int | str | None:
    if isinstance(value, str) and value != "auto":
        raise BadOption(f"batch_size={value!r} is unknown; use 'auto', None for full batches, or an integer.")
    return value if value is None or isinstance(value, str) else whole("batch_size", value, 1)


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


def complete(config: Config, n_rows: int, n_latent: int, M: int, numbered: bool = True) -> Options:
    """Complete a configuration for a table of this size: batch size, epochs, optimiser."""
    method = config.method.resolve(numbered)
    recommended = config.method.recommended and not config.spectral
    schedule = "outer" if method.sweeps_first else config.schedule
    width = n_latent * config.dtype.itemsize
    batch = _batch_size(config, method, schedule, n_rows, room=max(1, BATCH_BYTES // (width * M)))
    optimizer = config.optimizer
    if optimizer == "auto":
        optimizer = "adam" if batch is not None else method.full_batch_optimizer
    rate = config.learning_rate or (0.03 if batch is not None else 0.01)
    learns = bool(config.learn) or method.site_store == "free"
    most = RECOMMENDED_EPOCHS if recommended else BATCH_EPOCHS
    committee = method.committee is not None
    return Options(
        config=config,
        method=method,
        share_kernel=committee or config.share in ("kernel", "both"),
        share_inducing=not committee and (config.inducing is None or config.share in ("inducing", "both")),
        share_prior=config.share == "prior" or (config.share == "auto" and recommended),
        recommended=recommended,
        schedule=schedule,
        optimizer=optimizer,
        rate=rate,
        final_rate=0.1 * rate if batch is not None and optimizer == "adam" else rate,
        batch_size=batch,
        chunk=max(1, BATCH_BYTES // (width * max(M, LEAST_M))),
        max_epochs=config.max_epochs or _planned_epochs(learns, batch, n_rows, most),
        planned=config.max_epochs is None,
    )


def _batch_size(config: Config, method: Method, schedule: str, n_rows: int, room: int) -> int | None:
    """Return the batch size; None for full batches."""
    value, optimizer = config.batch_size, config.optimizer
    needs_all = schedule != "inner-approx" or optimizer in FULL_BATCH_OPTIMIZERS
    if value == "auto":
        if n_rows <= FULL_BATCH_ROWS or needs_all:
            return None
        low, high = BATCH_ROWS
        return min(max(low, n_rows // 6), high, room)
    if value is None or (is_whole(value) and int(value) >= n_rows):
        return None
    if needs_all and method.needs_all_rows:
        known = method_names(method.task).items()
        others = [repr(name) for name, cls in known if not (cls.needs_all_rows or cls.recommended)]
        raise BadOption(
            f"{method.argument} needs all rows at once, but batch_size={value}: use batch_size=None, or a method that takes "
            f"mini-batches: {', '.join(others[:-1])}{' or ' if others[1:] else ''}{others[-1]}."
        )
    if needs_all:
        what = f"schedule={schedule!r}" if schedule != "inner-approx" else f"optimizer={optimizer!r}"
        raise BadOption(
            f"{what} needs all rows at once, but batch_size={value}: use batch_size=None, or schedule='inner-approx' with "
            "optimizer='adam'."
        )
    return int(value)


def _planned_epochs(learns: bool, batch: int | None, n_rows: int, most: int) -> int:
    if not learns:
        return SWEEPS
    if batch is None:
        return most
    low, high = PLANNED_STEPS
    return max(3, math.ceil(min(high, low + n_rows // 50) * batch / n_rows))
