"""Read an estimator's arguments into one frozen configuration, before any row is read; complete it for a table's size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cavity import spectrum
from cavity.config.methods import Method, method_names, read_method
from cavity.config.regression_methods import RegressionMethod
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


@dataclass(frozen=True)
class Config:
    """The arguments of an estimator, checked. Nothing in it depends on the rows."""

    owner: str  # class of the estimator, for messages
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
    jitter: float  # relative to the kernel's variance
    device: torch.device
    dtype: torch.dtype
    random_state: Any
    warm_start: bool
    callbacks: tuple[Callback, ...]
    checkpoint: Path | None
    checkpoint_every: float
    resume: bool
    verbose: int
    arguments: dict[str, Any]  # as given, for the fingerprint of a checkpoint
    share: str | None = None
    schedule: str = "inner-approx"
    class_weight: Any = None
    validation_fraction: float | None = None
    patience: int = 1
    normalize_y: bool = True
    jitter_backs_off: bool = False  # use less jitter if the noise is so small that `jitter` would count

    @property
    def spectral(self) -> bool:
        """Whether features of the kernel's spectrum stand in for inducing points."""
        return spectrum.asked(self.inducing)

    @property
    def reads_whole_table(self) -> bool:
        """Whether every row must be in memory."""
        return self.schedule == "inner-exact" or self.method.in_memory or self.inducing is None

    def check_ranks(self, world: int) -> None:
        """Refuse what several processes cannot do."""
        if world > 1 and (self.schedule == "inner-exact" or self.method.at_mode):
            what = self.method.argument if self.method.at_mode else "schedule='inner-exact'"
            raise BadOption(
                f"{what} differentiates through all rows at once, and each of {world} ranks has only some: use "
                "schedule='inner-approx' or 'outer' of method='ep', or a single process."
            )

    def check_source(self, numbered: bool) -> None:
        """Refuse what rows that are not in memory cannot do; `numbered`: a row has the same number in every pass."""
        method = self.method.resolve(numbered)
        if isinstance(method, RegressionMethod):
            if method.in_memory:
                raise BadOption(
                    f"{method.argument} reads rows again that a source does not hold in memory: use method='svi' or 'vi', or give "
                    "the table as an array."
                )
            if self.inducing is None:
                raise BadOption(
                    "inducing=None has a point at every row, and a source may have any number: use n_inducing=."
                )
            return
        if method.site_store == "own" and not numbered:
            raise BadOption(
                f"{method.argument} stores sites per row, but rows of an iterable have no numbers to find them by: use "
                "method='sep', method=REP(sites='tied') or method='vi'; or write the rows to Parquet or .npy files."
            )
        if method.at_mode or self.schedule == "inner-exact":
            what = method.argument if method.at_mode else "schedule='inner-exact'"
            instead = (
                "method='ep', 'sep', 'rep', 'pep' or 'vi'"
                if method.at_mode
                else "schedule='inner-approx' or 'outer'"
            )
            raise BadOption(
                f"{what} differentiates through all rows at once, which a source does not hold in memory: use {instead}, or give "
                "the table as an array."
            )
        if self.inducing is None:
            raise every_row("inducing=None", "a source, whose rows are not in memory")

    def check_size(self, n_rows: int) -> None:
        """Refuse an inducing point at every row of a large table: it takes matrices of N² numbers."""
        method = self.method
        exact = isinstance(method, RegressionMethod) and method.inducing_from == "rows"
        if (exact or self.inducing is None) and n_rows > CANDIDATES:
            raise every_row(method.argument if exact else "inducing=None", f"{n_rows:,} rows")


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
    learn: frozenset[str]
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
    def device(self) -> torch.device:
        return self.config.device

    @property
    def dtype(self) -> torch.dtype:
        return self.config.dtype


def read_classifier(arguments: Mapping[str, Any]) -> Config:
    """Check the arguments of a GPClassifier."""
    given = dict(arguments)
    method = read_method(given["method"], "classification")
    learn = _read_learn(given["learn"], LEARN, method, given["inducing"])
    schedule = one_of("schedule", given["schedule"], SCHEDULES)
    optimizer = one_of("optimizer", given["optimizer"], OPTIMIZERS)
    damping = None if given["damping"] is None else number("damping", given["damping"], 0.0, 1.0)
    method.check_training(optimizer=optimizer, schedule=schedule, damping=damping)
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
    return _read_common(
        given,
        "GPClassifier",
        method,
        learn,
        optimizer,
        read_noise(given["noise"] if method.latent_noise else 0.0, "noise" in learn),
        share=one_of("share", given["share"], SHARE),
        schedule=schedule,
        class_weight=_read_class_weight(given["class_weight"]),
        validation_fraction=None if fraction is None else number("validation_fraction", fraction, 0.0, 0.9),
        patience=whole("patience", given["patience"], 1),
    )


def read_regressor(arguments: Mapping[str, Any]) -> Config:
    """Check the arguments of a GPRegressor."""
    given = dict(arguments)
    method = read_method(given["method"], "regression")
    assert isinstance(method, RegressionMethod)
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
    config = _read_common(
        given, "GPRegressor", method, learn, optimizer, noise, normalize_y=bool(given["normalize_y"])
    )
    if method.exact_jitter and given["jitter"] is None and config.dtype == torch.float64:
        return replace(config, jitter=EXACT_JITTER, jitter_backs_off=True)
    return config


def _is(value: Any, name: str) -> bool:
    return isinstance(value, str) and value == name


def _read_common(
    given: dict[str, Any],
    owner: str,
    method: Method,
    learn: frozenset[str],
    optimizer: str,
    noise: np.ndarray,
    **own: Any,
) -> Config:
    """Check the arguments that both estimators have."""
    kernel, dtype = given["kernel"], read_dtype(given["dtype"])
    if kernel is not None:
        check_kernel(kernel)
    check_choice(given["inducing"])
    if given["resume"] and given["checkpoint"] is None:
        raise BadOption("resume=True needs checkpoint=, the file to continue from.")
    batch_size = _read_batch_size(given["batch_size"])
    return Config(
        owner=owner,
        method=method,
        kernel=kernel,
        n_inducing=read_n_inducing(given["n_inducing"]),
        inducing=given["inducing"],
        noise=noise,
        learn=learn,
        optimizer=optimizer,
        learning_rate=_optional(given, "learning_rate", lambda v: number("learning_rate", v, 0.0)),
        damping=_optional(given, "damping", lambda v: number("damping", v, 0.0, 1.0)),
        batch_size=batch_size,
        max_epochs=_optional(given, "max_epochs", lambda v: whole("max_epochs", v, 1)),
        tol=number("tol", given["tol"], 0.0, strict=False),
        max_seconds=_optional(given, "max_seconds", lambda v: number("max_seconds", v, 0.0)),
        jitter=read_jitter(given["jitter"], dtype),
        device=resolve_device(given["device"]),
        dtype=dtype,
        random_state=given["random_state"],
        warm_start=bool(given["warm_start"]),
        callbacks=_read_callbacks(given["callbacks"]),
        checkpoint=None if given["checkpoint"] is None else Path(given["checkpoint"]),
        checkpoint_every=number("checkpoint_every", given["checkpoint_every"], 0.0, strict=False),
        resume=bool(given["resume"]),
        verbose=int(given["verbose"]),
        arguments=given,
        **own,
    )


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
    if "epsilon" in learn and "epsilon" not in method.learns:
        raise BadOption(
            f"learn with 'epsilon' is not used by {method.argument}, whose likelihood has no epsilon: use method='rep', or "
            "method='vi' with likelihood='robust-max'."
        )
    if "epsilon" in learn and getattr(method, "epsilon", None) == 0:
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


def _read_class_weight(value: Any) -> Any:
    if isinstance(value, dict):
        factors = np.array(list(value.values()), dtype=np.float64)
        if not (np.isfinite(factors).all() and (factors >= 0).all()):
            raise BadOption(f"class_weight={value!r} must hold finite numbers that are not negative.")
    elif value is not None and not _is(value, "balanced"):
        raise BadOption(
            f"class_weight={value!r} is unknown; use None, 'balanced', or a dict from class to weight."
        )
    return value


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
    if method.task == "classification":  # what "auto" stands for may not take these options
        method.check_training(optimizer=config.optimizer, schedule=config.schedule, damping=config.damping)
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
    committee = isinstance(method, RegressionMethod) and method.committee is not None
    return Options(
        config=config,
        method=method,
        learn=config.learn,
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
        others = [
            name
            for name, cls in method_names(method.task).items()
            if not (cls.needs_all_rows or cls.recommended)
        ]
        listed = " or ".join(
            [", ".join(map(repr, others[:-1])), repr(others[-1])] if len(others) > 1 else map(repr, others)
        )
        raise BadOption(
            f"{method.argument} needs all rows at once, but batch_size={value}: use batch_size=None, or a method that takes "
            f"mini-batches: {listed}."
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
