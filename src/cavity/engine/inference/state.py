"""The whole state of a run as one tuple of tensors, and what a step adds and reports.

Keep a copy of the state to resume or to start warm.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from cavity.common.linalg import Factor
from cavity.engine.inference.posterior import Sums

T = TypeVar("T")
Slots = tuple[Tensor, ...]  # the state of an optimiser


class Sites(NamedTuple):
    """One pair (τ, ν) per site, which replaces the factor by exp(−½ τ t² + ν t).

    A weighted row stores its total.
    """

    tau: Tensor  # [N S]
    nu: Tensor  # [N S]
    clock: Tensor  # [N], the state's clock when the row was last visited


class State(NamedTuple):
    """A run.

    Mini-batch steps write site rows in place, unless they fail; everything else is
    replaced.
    """

    theta: Tensor  # [P], the learnt hyper-parameters
    sites: Sites
    sums: Sums
    optimiser: Slots
    damping: Tensor  # []
    rate: Tensor  # [], step size of the hyper-parameters
    jitter: Tensor  # [], relative to the amplitude
    # [], Σ log(1 − ρ|B|/N) over the steps so far: how much of an old site the sums
    # still hold
    clock: Tensor
    generator: Tensor  # [uint8], order of the batches
    epoch: Tensor  # [] int64
    position: Tensor  # [] int64, batches done in this epoch


class Optimiser:
    """What the engine asks of an optimiser: pure `init` and `step` (ascent).

    `cavity.engine.training.optimisers` has the rules.

    This one leaves the parameters alone: the gradient is in the step's `info`.
    """

    def init(self, theta: Tensor) -> Slots:
        """Return the optimiser's state before its first step."""
        return ()

    def step(
        self, state: Slots, theta: Tensor, gradient: Tensor, rate: Tensor
    ) -> tuple[Tensor, Slots]:
        """Return the parameters and the optimiser's state after a step up the gradient."""
        return theta, state


class Factored(NamedTuple):
    """The factor of a state's q."""

    of: Tensor  # the very tensor P of the state: any other tensor needs a new factor
    factor: Factor


class Info(NamedTuple):
    """What a step reports.

    The objective belongs to the state that the step started from.
    """

    # [], log Z_q + log prior of the hyper-parameters (estimated from the batch)
    objective: Tensor
    evidence: Tensor  # [], log Z_q alone
    skipped: Tensor  # [], site updates skipped because the cavity was not positive
    # [] bool, the new state cannot be factorised or is not finite: the old one returns
    failed: Tensor
    # [] bool, the old state cannot be factorised itself: the objective is meaningless
    broken: Tensor
    factored: Factored  # of the returned state
    slope: Tensor | None  # [P], gradient of the objective, with an optimiser
    # [], of a step on all rows: its gain to first order, slope · step
    promise: Tensor | None


class Totals(NamedTuple):
    """Sums over a batch's rows. They add over pieces and over processes."""

    P: Tensor  # [C M M]
    h: Tensor  # [C M]
    value: Tensor  # [], Σ log s̃ (own sites), Σ log Z (tied) or Σ E log φ (variational)
    weight: Tensor  # []
    counts: Tensor  # [C], weighted number of sites on each class
    skipped: Tensor  # []
    failed: Tensor  # [] bool


class Slope(NamedTuple):
    """The gradient of a batch's rows. It adds over pieces and over processes."""

    gradient: Tensor  # [P]


def empty_sites(
    rows: int, sites: int, dtype: torch.dtype, device: torch.device
) -> Sites:
    """Return sites that are all zero, so that q is the prior."""
    zeros = torch.zeros(rows, sites, dtype=dtype, device=device)
    clock = torch.zeros(rows, dtype=torch.float64, device=device)
    return Sites(zeros, zeros.clone(), clock)


def copy_state(state: State) -> State:
    """Return a copy that no later step writes into."""
    copy: State = map_tensors(Tensor.clone, state)
    return copy._replace(
        generator=state.generator, epoch=state.epoch, position=state.position
    )


def map_tensors(function: Callable[..., Tensor], nest: Any, *others: Any) -> Any:
    """Return the nest of tuples with the function applied to its tensors.

    The function also receives the tensors of the other nests at the same place.
    """
    if nest is None:
        return None
    if isinstance(nest, Tensor):
        return function(nest, *others)

    parts = [map_tensors(function, *part) for part in zip(nest, *others, strict=True)]
    if hasattr(nest, "_fields"):
        return type(nest)(*parts)

    return tuple(parts)


def is_readable(flag: Tensor) -> bool:
    """Return whether Python may read a flag.

    On a GPU reading would wait, and a recorded step cannot branch.
    """
    return not flag.is_cuda


def start_on_second_stream(
    work: Callable[[], T], device: torch.device
) -> Callable[[], T]:
    """Start work on a side stream of a GPU; return a function that waits for it.

    On the CPU, run eagerly.
    """
    if device.type != "cuda":
        done = work()
        return lambda: done

    side = _second_stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        result = work()

    def wait() -> T:
        torch.cuda.current_stream(device).wait_stream(side)
        return result

    return wait


@cache
def _second_stream(device: torch.device) -> Any:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def choose(failed: Tensor, old: Any, new: Any) -> Any:
    """Return the old nest of tensors if the step failed, else the new one.

    The flag is not read.
    """
    return map_tensors(
        lambda a, b: b if a is b else torch.where(failed, a, b), old, new
    )
