"""Check what a model file declares before any tensor is read: names, types, and sizes that the model needs."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from cavity import persist
from cavity.errors import BadFile
from cavity.modelfile.checks import check_types, expect
from cavity.modelfile.facts import refuse_prior_mean, unpack_labels
from cavity.modelfile.posterior import Q, check_posterior
from cavity.prediction.rowwise import TENSORS

NAMES = ("mean", "lower", "prior_lower", "feature_relevance")
PREFIXES = (
    "prior.",
    "factor.",
    "growing.",
    "arguments.",
    "likelihood.",
    "pool.",
    "selection.",
)  # the kernel decides which of them there are
CORE = (*Q._fields, "prior.inducing")
ROOM = 64  # times the posterior's size: parameters, an optimiser's memory, arrays among the arguments
LEAST = 1 << 20  # bytes that any model may have
TREES = "pool."
MOST_TREES = 1 << 30  # bytes that the trees may have


def check_sizes(declared: dict[str, persist.Entry], meta: dict[str, Any], kernel: Any = None) -> None:
    """Raise BadFile for unknown tensors, and for tensors larger than the model's posterior can need."""
    refuse_prior_mean(meta)
    try:
        tensors = {name: entry.as_meta() for name, entry in declared.items()}
        _check_names(tensors)
        check_types(tensors)
        _check_total(tensors, meta, kernel)
    except BadFile:
        raise
    except persist.DAMAGE as error:
        raise BadFile(f"the file is damaged: {type(error).__name__} {error!s:.200}.") from error


def _check_names(tensors: dict[str, Tensor]) -> None:
    known = (*NAMES, *(f"rows.{name}" for name in TENSORS))
    for name in tensors:
        if name not in known and not name.startswith(PREFIXES):
            raise BadFile(f"the tensor {name!r:.100} is not known: update cavity.")


def _check_total(tensors: dict[str, Tensor], meta: dict[str, Any], kernel: Any) -> None:
    labels = meta.get("classes")
    n_classes = None if labels is None else len(unpack_labels(labels))
    C = len(tensors["mean"]) if n_classes is None else 1 if n_classes == 2 else n_classes
    q = check_posterior(tensors, meta["prior"], C, coupled=n_classes is not None)
    M, D = q.prior_lower.shape[-1], len(tensors["prior.center"])
    if "rows.y" in tensors:
        _check_rows(tensors, M, len(tensors["rows.y"]), D)
    rest = sum(
        _size(t) for name, t in tensors.items() if name not in CORE and not name.startswith(("rows.", TREES))
    )
    if sum(_size(t) for name, t in tensors.items() if name.startswith(TREES)) > MOST_TREES:
        raise BadFile(f"the trees of the model take more than {MOST_TREES >> 20} MB.")
    core = sum(_size(tensors[name]) for name in CORE)
    if isinstance(kernel, nn.Module):  # its weights, and what an optimiser remembers of them
        core += sum(_size(t) for t in (*kernel.parameters(), *kernel.buffers()))
    if rest > ROOM * core + LEAST:
        name = max((n for n in tensors if n not in CORE), key=lambda n: _size(tensors[n]))
        raise BadFile(
            f"the tensor {name!r:.100} of {_size(tensors[name])} bytes is larger than a model of {C} latent functions, {M} "
            f"inducing points and {D} columns needs."
        )


def _check_rows(tensors: dict[str, Tensor], M: int, N: int, D: int) -> None:
    shapes = {"X": (N, D), "y": (N,), "weight": (N,), "a": (M, N), "lower": (M, M), "alpha": (N,)}
    for name in TENSORS:
        if f"rows.{name}" in tensors:
            expect(f"rows.{name}", tensors[f"rows.{name}"], [shapes[name]], None)


def _size(tensor: Tensor) -> int:
    return math.prod(tensor.shape) * tensor.element_size()
