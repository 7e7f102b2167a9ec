"""What peers share: fitted models, a validation set, and Adam with early stopping."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from experiments.sets import Array, Split

RATES = (0.01, 0.1)  # learning rates of Adam; validation chooses
PATIENCE = 20  # evaluations without a smaller validation NLL
MIN_IMPROVEMENT = 1e-4
MOST_STEPS = 20_000
MEDIAN_ROWS = 1000


class Fitted(NamedTuple):
    """A fitted model of any library."""

    log_proba: Callable[[Array], Array]
    classes: NDArray[Any]
    model: Any
    seconds: float
    note: str = ""
    M: int | None = None


class Trainable(Protocol):
    """A model that Adam trains."""

    M: int

    def step(self) -> None:
        """Take one step of Adam."""

    def log_proba(self, X: Array) -> Array:
        """Logarithms of the class probabilities."""

    def weights(self) -> Any:
        """Everything that prediction needs."""

    def load(self, weights: Any) -> None:
        """Restore weights."""


@dataclass
class Trained:
    """The best state of one run by validation NLL, and the course of the run."""

    rate: float
    model: Trainable
    validation_nll: float = float("inf")  # the lowest
    seconds: float = 0.0  # until that state, without evaluations
    steps: int = 0
    curve: list[tuple[float, float]] = field(default_factory=list)  # seconds, validation NLL


def hold_out(data: Split, seed: int, fraction: float = 0.1) -> tuple[Split, Split]:
    """Split off a fraction of every class for validation; at least one row of each class stays."""
    rng = np.random.default_rng([seed, 2])
    held = np.zeros(len(data.y), dtype=bool)
    for label in np.unique(data.y):
        rows = np.flatnonzero(data.y == label)
        held[rng.permutation(rows)[: min(max(1, round(fraction * len(rows))), len(rows) - 1)]] = True
    return data._replace(X=data.X[~held], y=data.y[~held]), data._replace(X=data.X[held], y=data.y[held])


def median_distance(X: Array, rng: np.random.Generator) -> float:
    """Median distance between rows: with many features a better start than the libraries' own lengthscale."""
    some = X[rng.permutation(len(X))[:MEDIAN_ROWS]]
    squares = (some**2).sum(1)
    gap = squares[:, None] + squares[None] - 2 * some @ some.T
    return float(np.sqrt(np.median(gap[np.triu_indices(len(some), 1)]).clip(1e-6)))


def train(
    model: Trainable,
    rate: float,
    held: Split,
    classes: NDArray[Any],
    every: int,
    most_steps: int | None = None,
) -> Trained:
    """Run Adam until the validation NLL stops falling, then restore the best state.

    `held` are the validation rows, `every` is the number of steps between evaluations, `most_steps` at most `MOST_STEPS`.
    """
    best, weights = Trained(rate, model), copy.deepcopy(model.weights())
    place = (np.arange(len(held.y)), np.searchsorted(classes, held.y))
    seconds, since = 0.0, 0
    for step in range(1, min(most_steps or MOST_STEPS, MOST_STEPS) + 1):
        begin = time.perf_counter()
        model.step()
        seconds += time.perf_counter() - begin
        if step % every:
            continue
        nll = float(-model.log_proba(held.X)[place].mean())
        best.curve.append((seconds, nll))
        since = 0 if nll < best.validation_nll - MIN_IMPROVEMENT else since + 1
        if nll < best.validation_nll:
            best.validation_nll, best.seconds, best.steps = nll, seconds, step
            weights = copy.deepcopy(model.weights())
        if since >= PATIENCE:
            break
    model.load(weights)
    return best


def choose_best(runs: list[Trained], classes: NDArray[Any]) -> Fitted:
    """The run with the lowest validation NLL. Its seconds are those of this run alone."""
    best = min(runs, key=lambda run: run.validation_nll)
    tried = ", ".join(f"{run.rate:g}: {run.validation_nll:.4f} after {run.steps} steps" for run in runs)
    note = f"rate {best.rate:g} (validation NLL {tried})"
    model = best.model
    return Fitted(model.log_proba, classes, model, best.seconds, note, model.M)
