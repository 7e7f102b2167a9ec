"""What the user asked of a fit: the arguments of `fit` and of the estimator, checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.common import tensor_files
from cavity.common.ranks import Local, check_same
from cavity.common.version import __version__
from cavity.engine import processes
from cavity.errors import BadOption
from cavity.fitting import monitoring
from cavity.fitting.clock import Clock
from cavity.fitting.options import policy
from cavity.fitting.options.configuration import Config
from cavity.fitting.options.plan import TableSize
from cavity.fitting.options.value_checks import read_limit
from cavity.fitting.results import Continuation
from cavity.tables.arrow_tables import refuse_many_columns
from cavity.tables.table import Facts, GivenRows
from cavity.tables.validation import Features

AnyConfig = TypeVar("AnyConfig", bound=Config)

# Arguments that may differ between ranks; rank 0 sets the seed.
OF_A_RANK = ("random_state", "callbacks", "verbose", "device", "checkpoint")


class Request(NamedTuple, Generic[AnyConfig]):
    """What the user asked, and what all parts of one fit share."""

    raw: GivenRows  # its eval_set is read, too
    config: AnyConfig
    earlier: Continuation | None  # what a warm start continues from
    reduce: Local
    seed: int
    clock: Clock

    @property
    def verbose(self) -> int:
        if self.reduce.rank == 0:
            return self.config.verbose

        return 0

    def for_fold(self, seconds: float | None) -> Request[AnyConfig]:
        """Return the request of a fit to one fold's training rows."""
        quiet = replace(
            self.config,
            callbacks=(),
            checkpoint=None,
            resume=False,
            verbose=0,
            warm_start=False,
        )
        clock = Clock.start(None, self.reduce)
        return self._replace(
            config=replace(quiet, max_seconds=seconds), earlier=None, clock=clock
        )

    def on_best_device(self, size: TableSize) -> Request[AnyConfig]:
        """Choose the device by the size of the table.

        Several ranks keep the devices that they exchange by.
        """
        alone = self.reduce.world == 1
        if alone:
            return self._replace(config=policy.choose_device(self.config, size))

        return self


def make_request(
    config: AnyConfig, raw: GivenRows, earlier: Continuation | None
) -> Request[AnyConfig]:
    """Check the arguments before any row is read.

    `eval_set` becomes rows of its own, `time_limit` a clock.
    """
    held = monitoring.read_eval_set(config, raw.eval_set)
    limit = read_limit(raw.time_limit)
    refuse_many_columns(raw.X)
    raw = raw.with_arrays()._replace(eval_set=held)
    processes.warn_unjoined()
    reduce = processes.current()
    clock = Clock.start(limit, reduce)
    config.check_ranks(reduce.world)
    _check_arguments(config, reduce)
    return Request(
        raw, config, earlier, reduce, monitoring.draw_seed(config, reduce), clock
    )


def _check_arguments(config: Config, reduce: Local) -> None:
    """Raise BadOption on every rank if versions or arguments differ."""
    if reduce.world == 1:
        return

    versions = {
        "cavity": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
    given = {
        n: monitoring.describe(value)
        for n, value in config.arguments.items()
        if n not in OF_A_RANK
    }
    facts = {f"the version of {name}": version for name, version in versions.items()}
    facts |= {f"the argument {name}": value for name, value in given.items()}
    check_same(
        reduce,
        facts | {"having a checkpoint": config.checkpoint is not None},
        BadOption,
    )


def check_storable(features: Features, classes: NDArray[Any] | None) -> None:
    """Raise BadInput if a model file has no room for names, before anything trains."""
    encoder = features.encoder
    columns = encoder.feature_names_in_.tolist()
    each = dict.fromkeys(columns, 1 / 3)  # a number has as many digits
    labels = [] if classes is None else [str(label) for label in classes.tolist()]
    tensor_files.check_room(
        {
            "preparation": encoder.to_json(),
            "names": columns,
            "described": encoder.describe(),
            "relevance": each,
            "importance": each,
            "shares": list(each.values()),
            "classes": labels,
            "shown": labels,
            "few": labels,
        }
    )


def check_ranks_agree(
    table: Facts, features: Features, classes: NDArray[Any] | None, reduce: Local
) -> None:
    """Raise BadInput on every rank if the rows differ."""
    if reduce.world == 1:  # the digest takes long
        return

    facts = {
        "the number of rows": table.n_rows,
        "the number of features": features.n,
        "the names of features": features.names,
        "the classes": None if classes is None else monitoring.describe(classes),
        "the digest of the rows": table.content(),
    }
    check_same(reduce, facts)
