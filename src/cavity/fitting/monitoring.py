"""What follows a fit as it runs: the user's callbacks, early stopping, checkpoints."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.common.ranks import Local
from cavity.common.scoring import average, score_rows
from cavity.engine.inference import Engine, State
from cavity.engine.training.callbacks import Callback, EarlyStopping
from cavity.engine.training.checkpoint import (
    Checkpoint,
    find_newest_checkpoint,
    name_rank_file,
    read_seed,
)
from cavity.engine.training.loop import Run
from cavity.errors import BadInput, BadOption, name_in_errors
from cavity.fitting.options import value_checks
from cavity.fitting.options.configuration import Config
from cavity.fitting.options.plan import TrainingPlan
from cavity.prediction.model import snapshot
from cavity.prediction.predict import log_probabilities, predict_latent
from cavity.tables import splitting
from cavity.tables.table import Facts, GivenRows, Table

# Which model a run fits; how it is trained may change.
MODEL_ARGUMENTS = ("kernel", "noise", "learn", "share", "class_weight", "order")
ADVICE = "give one pair, eval_set=(X_val, y_val)."


def find_checkpoint(config: Config, reduce: Local) -> Path | None:
    """Return the file to continue from: the newest that every rank has."""
    if not config.resume or config.checkpoint is None:
        return None

    return find_newest_checkpoint(name_rank_file(config.checkpoint, reduce), reduce)


def draw_seed(config: Config, reduce: Local) -> int:
    """Return the seed of the run, the same on every rank.

    A resumed run keeps the seed of its checkpoint.
    """
    fresh = value_checks.draw_seed(config.random_state)
    path = find_checkpoint(config, reduce)
    if path is None:
        mine = fresh
    else:
        mine = read_seed(path)

    return int(reduce.first(lambda: mine))


def hold_out_rows(
    table: Table, fraction: float, rng: np.random.Generator
) -> tuple[Table, Table]:
    """Split off validation rows, a share of each class.

    Every class keeps at least one row to train on.
    """
    held = splitting.hold_out(table.X, table.y, fraction, rng, group=table.group)
    if not held.any():
        raise BadInput(
            f"validation_fraction={fraction:g} of {len(held)} rows leaves none to "
            f"validate on: raise it, or leave it out."
        )

    return table.select(~held), table.select(held)


def describe_run(
    config: Config,
    plan: TrainingPlan,
    table: Facts,
    classes: NDArray[Any] | None,
    seed: int,
) -> dict[str, Any]:
    """Return which run a checkpoint belongs to: its rows and its model."""
    given = config.arguments
    return {
        "rows": table.n_rows,
        "classes": table.n_classes,
        "data": table.content(),
        "labels": None if classes is None else describe(classes),
        "method": config.method.label,
        "n_inducing": plan.n_inducing,
        "optimizer": plan.optimizer,  # which cannot read what another one remembers
        "seed": seed,
        **{name: describe(given[name]) for name in MODEL_ARGUMENTS if name in given},
    }


def describe(value: Any) -> str:
    """Return a short text that is the same in every process if the value is."""
    if isinstance(value, np.ndarray | torch.Tensor):
        array = np.asarray(
            value.detach().cpu() if isinstance(value, torch.Tensor) else value
        )
        text = f"{array.dtype.kind} {array.shape} {array.tolist()}"
    else:
        text = re.sub(r" at 0x[0-9a-f]+", "", repr(value))  # addresses differ

    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    if len(text) < 200:
        return text

    return f"{text[:60]}... (SHA-256 {digest})"


def make_callbacks(
    config: Config, facts: dict[str, Any], reduce: Local
) -> tuple[Callback, ...]:
    """Return the user's callbacks, then the checkpoint: it stores what they did."""
    path = config.checkpoint
    if path is None:
        return config.callbacks
    # later failures only warn
    if not os.path.isdir(path.parent) or os.path.isdir(path):
        what = "is a folder"
        if not os.path.isdir(path):
            what = f"the folder {str(path.parent)!r} does not exist"
        raise BadOption(
            f"checkpoint={str(path)!r}: {what}. Name a file in a folder that exists."
        )

    return *config.callbacks, Checkpoint(
        name_rank_file(path, reduce), config.checkpoint_every, facts
    )


def find_failed_checkpoint(run: Run) -> list[tuple[str, type[Warning]]]:
    failed = (
        c.problem for c in run.callbacks if isinstance(c, Checkpoint) and c.problem
    )
    text = "the last checkpoint failed: {} resume=True would go on from an earlier one."
    return [(text.format(problem), RuntimeWarning) for problem in failed]


def restore_best(run: Run) -> None:
    """Go back to the best state so far, if rows are held out to judge it."""
    for callback in run.callbacks:
        if isinstance(callback, EarlyStopping):
            callback.end(run)


def read_eval_set(config: Config, eval_set: Any) -> GivenRows | None:
    """Return X and y of `(X, y)` or `[(X, y)]`.

    Raises BadOption if it is not a pair, or if other rows validate the fit, too.
    """
    if eval_set is None:
        return None

    if isinstance(eval_set, list) and len(eval_set) == 1:
        pair = eval_set[0]
    else:
        pair = eval_set

    if not isinstance(pair, tuple | list):
        raise BadOption(f"eval_set is a {type(eval_set).__name__}: {ADVICE}")
    if len(pair) != 2:
        raise BadOption(f"eval_set has {len(pair)} parts instead of 2: {ADVICE}")
    if all(isinstance(part, tuple) for part in pair):
        raise BadOption(
            f"eval_set has {len(pair)} pairs, but one set decides when training stops: "
            f"{ADVICE}"
        )
    if getattr(config, "validation_fraction", None) is not None:
        raise BadOption(
            "eval_set= and validation_fraction= both give validation rows: leave one "
            "out."
        )

    with name_in_errors("eval_set"):
        return GivenRows(*pair).with_arrays()


def make_early_stopping(held: Table, patience: int) -> EarlyStopping:
    """Return a callback that judges states by the weighted NLL of held-out rows."""

    def judge(engine: Engine, state: State) -> float:
        model = snapshot(engine, state)  # the run stays untouched
        f = predict_latent(model, torch.tensor(held.X, device=state.theta.device))
        return average(
            score_rows(log_probabilities(model, f), held.y)["nll"], held.weight
        ).value

    return EarlyStopping(judge, patience)
