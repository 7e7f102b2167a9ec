"""The arguments of an estimator as one frozen configuration, and its completion for a table of known size."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch

from cavity import spectrum
from cavity.config.methods import Method, method_names
from cavity.config.regression_methods import RegressionMethod
from cavity.config.values import is_whole, read_jitter
from cavity.errors import BadOption
from cavity.inducing import CANDIDATES
from cavity.remote import Location
from cavity.training.callbacks import Callback

EXACT_JITTER = 1e-8  # relative; where Z = X nothing else separates the model from the exact one
FULL_BATCH_OPTIMIZERS = ("sign", "lbfgs", "newton", "gradient")

BATCH_BYTES = 128 << 20  # of one C × M × batch array
LEAST_M = 64  # below, a row's sites and moments take more than its projection
FULL_BATCH_ROWS = 1000
MOST_BATCH_ROWS = 1000
MOST_STEPS = 2000
BATCH_EPOCHS = 500
RECOMMENDED_EPOCHS = 200  # of method="auto" on full batches with the sign rule
QUICK_LATENT = 5  # latent functions from which there are many
QUICK_ROWS = FULL_BATCH_ROWS  # up to which method="auto" takes L-BFGS
# The same with few latent functions, but not with one: on 2,000 rows, mini-batches had the lower NLL for two classes and for six.
QUICK_ROWS_FEW = 5000
QUICK_EPOCHS = (8, 12)  # of L-BFGS there
SWEEPS = 10_000

LEAST_POINTS, MOST_POINTS = 100, 2000  # that n_inducing="auto" may choose
# By effort, and whether on a GPU: points per square root of the rows, and the most C M², about the operations per row of a step.
POINTS = {
    ("balanced", False): (3.0, 1e6),
    ("balanced", True): (4.0, 1e7),
    ("best", False): (4.5, 2.5e6),
    ("best", True): (9.0, 4e7),
}
MANY_LATENT = 30  # latent functions above which method="auto" plans for many classes
MANY_POINTS = {  # by effort: points per row of an average class, and the most C M²
    "fast": (0.8, 4e5),
    "balanced": (1.33, 1e6),
    "best": (2.0, 4e6),
}
LEAST_MANY_POINTS = 20
MOST_SITES = (
    1 << 27
)  # of EP with many classes: 2 GB. Above, method="auto" takes SEP, whose memory does not depend on the rows
REFIT_ROWS = 50_000  # up to which a second fit finds the temperature


class Pace(NamedTuple):
    """How mini-batches train, where the user leaves it to the library."""

    least_rows: int  # of a batch
    parts: int  # batches of a pass, between the least and the most rows of a batch
    least_steps: int  # more with the number of rows
    rate: float  # of Adam


STEADY = Pace(least_rows=200, parts=6, least_steps=600, rate=0.03)
# Half of the rows per step, half of the steps, larger ones: a third of the time. On seven splits of satellite with 2,000 rows the
# NLL changes by -.0010 (standard error .0019). A twentieth of the rows per step is faster, but lost .005 on three of these splits,
# .06 on letter (26 classes), .01 on 4,000 rows of satellite and .005 on phoneme (two classes).
BRISK = Pace(least_rows=100, parts=12, least_steps=260, rate=0.08)
BRISK_LATENT, BRISK_ROWS = range(QUICK_LATENT, 11), 2000
MANY = STEADY._replace(parts=15, rate=0.06)


@dataclass(frozen=True, kw_only=True)
class Config:
    """The arguments of an estimator, checked. Nothing in it depends on the rows."""

    owner: ClassVar[str]  # class of the estimator, for messages

    method: Method
    kernel: Any
    n_inducing: int | float | None  # None: chosen by the number of rows
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
    checkpoint: Location | None
    checkpoint_every: float
    resume: bool
    exchange: int | str  # mini-batch steps of a rank between exchanges, or "auto"; 1: a sum in every step
    verbose: int
    arguments: dict[str, Any]  # as given
    share: str | None = None
    schedule: str = "inner-approx"

    @property
    def jitter_backs_off(self) -> bool:
        """Whether less jitter is used if the noise is so small that the default would count."""
        return self.method.exact_jitter and self.arguments["jitter"] is None and self.dtype == torch.float64

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
        jitter = choose_jitter(self.arguments["jitter"], torch.float64, self.method)
        return replace(self, dtype=torch.float64, jitter=jitter)

    @property
    def hurries(self) -> bool:
        """Whether a shorter training is worth a little evidence."""
        return False

    def inducing_points(self, n_rows: int, n_latent: int) -> int | float:
        """Return the number of inducing points, or their share of the rows."""
        assert self.n_inducing is not None
        return self.n_inducing

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
    effort: str
    selects: bool  # whether other models than the default one are tried
    calibrates: bool  # whether a temperature is fitted
    ensemble: Any  # None, "trees", or classifiers to pool with
    mean: Any  # None, "trees", or classifiers that give the prior mean

    @property
    def hurries(self) -> bool:
        return self.effort != "best"

    def inducing_points(self, n_rows: int, n_latent: int) -> int | float:
        """Return `n_inducing`; the library's choice grows with the square root of the rows, within what the effort allows.

        With many classes it is limited by the rows per class, since the time of a step grows with C M².
        """
        if self.n_inducing is not None:
            return self.n_inducing
        if not self.method.recommended:
            return LEAST_POINTS
        usual = LEAST_POINTS
        if self.effort != "fast":
            scale, work = POINTS[self.effort, self.device.type == "cuda"]
            most = min(MOST_POINTS, math.isqrt(int(work / n_latent)))
            usual = max(LEAST_POINTS, min(most, round(scale * math.sqrt(n_rows))))
        if n_latent <= MANY_LATENT:
            return usual
        scale, work = MANY_POINTS[self.effort]
        few = min(math.isqrt(int(work / n_latent)), round(scale * n_rows / n_latent))
        return min(usual, max(LEAST_MANY_POINTS, few))

    def holds_out(self, n_rows: int) -> bool:
        """Whether rows to calibrate with are held out of the only fit, because a second one would take long."""
        asked = self.ensemble is not None or (self.calibrates and self.effort != "fast")
        return asked and n_rows > REFIT_ROWS

    def for_folds(self, seconds: float | None) -> ClassifierConfig:
        """Return the configuration of a fit to a part of the rows, whose model only predicts the other rows."""
        return replace(
            self,
            selects=False,
            calibrates=False,
            ensemble=None,
            callbacks=(),
            checkpoint=None,
            resume=False,
            verbose=0,
            warm_start=False,
            max_seconds=seconds,
        )

    def check_ranks(self, world: int) -> None:
        """Refuse what several processes cannot do."""
        super().check_ranks(world)
        if world > 1 and self.mean is not None:
            raise BadOption(
                f"mean= fits other classifiers to all rows, and each of {world} ranks has only some: use a single process."
            )

    def check_source(self, numbered: bool) -> None:
        """Refuse what rows that are not in memory cannot do; `numbered`: a row has the same number in every pass."""
        self.check_passing_rows(numbered)
        if self.mean is not None:
            raise BadOption(
                "mean= fits other classifiers to a table in memory, which a source is not: leave it out, or give an array."
            )
        if self.ensemble is not None and self.arguments["ensemble"] != "auto":
            raise BadOption(
                "ensemble= fits other classifiers to a table in memory, which a source is not: leave it out, or give an array."
            )
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


def choose_jitter(value: Any, dtype: torch.dtype, method: Method) -> float:
    exact = value is None and method.exact_jitter and dtype == torch.float64
    return EXACT_JITTER if exact else read_jitter(value, dtype)


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
    quick: bool  # L-BFGS with roughly converged sites: the choice of method="auto" for small tables
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


def complete(config: Config, n_rows: int, n_latent: int, M: int, numbered: bool = True) -> Options:
    """Complete a configuration for a table of this size: batch size, epochs, optimiser."""
    crowded = n_latent > MANY_LATENT
    method = config.method.resolve(numbered and not (crowded and 2 * n_rows * n_latent > MOST_SITES))
    # what "auto" stands for may not take these options
    method.check_training(optimizer=config.optimizer, schedule=config.schedule, damping=config.damping)
    recommended = config.method.recommended and not config.spectral
    many = n_latent >= QUICK_LATENT
    most = QUICK_ROWS if many or n_latent == 1 else QUICK_ROWS_FEW
    free = recommended and numbered and _is_free(config)
    quick = free and n_rows <= most
    brisk = free and config.hurries and n_latent in BRISK_LATENT and n_rows <= BRISK_ROWS
    pace = MANY if recommended and crowded else BRISK if brisk else STEADY
    schedule = "outer" if method.sweeps_first or quick else config.schedule
    width = n_latent * config.dtype.itemsize
    batch = _batch_size(config, method, schedule, n_rows, max(1, BATCH_BYTES // (width * M)), pace)
    optimizer = config.optimizer
    if optimizer == "auto":
        full = "lbfgs" if quick else method.full_batch_optimizer
        optimizer = "adam" if batch is not None else full
    rate = config.learning_rate or (pace.rate if batch is not None else 0.01)
    learns = bool(config.learn) or method.site_store == "free"
    usual = RECOMMENDED_EPOCHS if recommended else BATCH_EPOCHS
    committee = method.committee is not None
    return Options(
        config=config,
        method=method,
        share_kernel=committee or config.share in ("kernel", "both"),
        share_inducing=not committee and (config.inducing is None or config.share in ("inducing", "both")),
        share_prior=config.share == "prior" or (config.share == "auto" and recommended),
        recommended=recommended,
        quick=quick,
        schedule=schedule,
        optimizer=optimizer,
        rate=rate,
        final_rate=0.1 * rate if batch is not None and optimizer == "adam" else rate,
        batch_size=batch,
        chunk=max(1, BATCH_BYTES // (width * max(M, LEAST_M))),
        max_epochs=config.max_epochs
        or _planned_epochs(learns, batch, n_rows, QUICK_EPOCHS[many] if quick else usual, pace),
        planned=config.max_epochs is None,
    )


def _is_free(config: Config) -> bool:
    """Return whether the user left batches, optimiser, schedule and step size to the library."""
    chosen = config.learning_rate is not None or config.batch_size not in ("auto", None)
    return (
        not chosen and config.optimizer == "auto" and config.schedule == "inner-approx" and bool(config.learn)
    )


def _batch_size(
    config: Config, method: Method, schedule: str, n_rows: int, room: int, pace: Pace
) -> int | None:
    """Return the batch size; None for full batches."""
    value, optimizer = config.batch_size, config.optimizer
    needs_all = schedule != "inner-approx" or optimizer in FULL_BATCH_OPTIMIZERS
    if value == "auto":
        if n_rows <= FULL_BATCH_ROWS or needs_all:
            return None
        return min(max(pace.least_rows, n_rows // pace.parts), MOST_BATCH_ROWS, room)
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


def _planned_epochs(learns: bool, batch: int | None, n_rows: int, most: int, pace: Pace) -> int:
    if not learns:
        return SWEEPS
    if batch is None:
        return most
    return max(3, math.ceil(min(MOST_STEPS, pace.least_steps + n_rows // 50) * batch / n_rows))
