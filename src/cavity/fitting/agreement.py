"""Ranks check before the first step that they fit the same model to the same rows, with the same versions."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cavity._version import __version__
from cavity.distributed import Local, check_same
from cavity.errors import BadOption
from cavity.options import Config
from cavity.rows.tables import Facts
from cavity.rows.validation import Features

OF_A_RANK = (
    "random_state",
    "callbacks",
    "verbose",
    "device",
    "checkpoint",
)  # arguments that may differ; rank 0 sets the seed


def check_arguments(config: Config, reduce: Local) -> None:
    """Raise BadOption on every rank if versions or arguments differ."""
    if reduce.world == 1:
        return
    versions = {"cavity": __version__, "torch": torch.__version__, "numpy": np.__version__}
    given = {n: _describe(value) for n, value in config.arguments.items() if n not in OF_A_RANK}
    facts = {f"the version of {name}": version for name, version in versions.items()}
    facts |= {f"the argument {name}": value for name, value in given.items()}
    check_same(reduce, facts | {"having a checkpoint": config.checkpoint is not None}, BadOption)


def check_rows(table: Facts, features: Features, classes: NDArray[Any] | None, reduce: Local) -> None:
    """Raise BadInput on every rank if the rows differ."""
    if reduce.world == 1:
        return
    facts = {
        "the number of rows": table.n_rows,
        "the number of features": features.n,
        "the names of features": features.names,
        "the classes": None if classes is None else _describe(classes),
        "the digest of the rows": table.content(),
    }
    check_same(reduce, facts)


def _describe(value: Any) -> str:
    """Return a short text that is the same on every rank if the value is."""
    if isinstance(value, np.ndarray | torch.Tensor):
        array = np.asarray(value.detach().cpu() if isinstance(value, torch.Tensor) else value)
        text = f"{array.dtype.kind} {array.shape} {array.tolist()}"
    else:
        text = re.sub(r" at 0x[0-9a-f]+", "", repr(value))  # addresses differ
    return (
        text
        if len(text) < 200
        else f"{text[:60]}... (SHA-256 {hashlib.sha256(text.encode()).hexdigest()[:16]})"
    )
