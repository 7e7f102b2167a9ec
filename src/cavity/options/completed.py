"""A configuration completed for a table of known size: method, batches, optimiser, epochs."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cavity.errors import BadOption
from cavity.options.auto_pace import Pace, choose_pace, is_too_large_for_ep, lbfgs_epochs, prefers_lbfgs
from cavity.options.configuration import Config
from cavity.options.method import Method, method_names
from cavity.options.value_checks import is_whole

FULL_BATCH_OPTIMIZERS = ("sign", "lbfgs", "newton", "gradient")
BATCH_BYTES = 128 << 20  # of one C × M × batch array
LEAST_M = 64  # below, a row's sites and moments take more than its projection
FULL_BATCH_ROWS = 1000
FULL_BATCH_EPOCHS = 500
RECOMMENDED_EPOCHS = 200  # of method="auto" on full batches with the sign rule
SWEEPS = 10_000


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
    method = config.method.resolve(numbered and not is_too_large_for_ep(n_rows, n_latent))
    # what "auto" stands for may not take these options
    method.check_training(optimizer=config.optimizer, schedule=config.schedule, damping=config.damping)
    recommended = config.method.recommended and not config.spectral
    free = recommended and numbered and _is_free(config)
    quick = free and prefers_lbfgs(n_rows, n_latent)
    pace = choose_pace(n_rows, n_latent, recommended=recommended, hurries=free and config.hurries)
    schedule = "outer" if method.sweeps_first or quick else config.schedule
    width = n_latent * config.dtype.itemsize
    batch = _batch_size(config, method, schedule, n_rows, max(1, BATCH_BYTES // (width * M)), pace)
    optimizer = config.optimizer
    if optimizer == "auto":
        full = "lbfgs" if quick else method.full_batch_optimizer
        optimizer = "adam" if batch is not None else full
    rate = config.learning_rate or (pace.rate if batch is not None else 0.01)
    learns = bool(config.learn) or method.site_store == "free"
    full_epochs = RECOMMENDED_EPOCHS if recommended else FULL_BATCH_EPOCHS
    if quick:
        full_epochs = lbfgs_epochs(n_latent)
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
        max_epochs=config.max_epochs or _planned_epochs(learns, batch, n_rows, full_epochs, pace),
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
        return min(pace.batch_rows(n_rows), room)
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


def _planned_epochs(learns: bool, batch: int | None, n_rows: int, full_epochs: int, pace: Pace) -> int:
    if not learns:
        return SWEEPS
    return full_epochs if batch is None else pace.epochs(n_rows, batch)
