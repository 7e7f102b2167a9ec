"""What watches a fit: the user's callbacks, early stopping, checkpoints."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cavity.distributed import Local
from cavity.errors import BadInput, BadOption
from cavity.estimators import fitted, tables
from cavity.estimators.checks import check_labels, check_rows
from cavity.estimators.values import number, whole
from cavity.inference import Engine, State
from cavity.training.callbacks import Callback, EarlyStopping
from cavity.training.checkpoint import Checkpoint, digest, newest_checkpoint, rank_file, read_facts
from cavity.training.loop import Run

MODEL = ("kernel", "noise", "learn", "share", "likelihood", "bound", "epsilon", "power", "sites", "q_update")


def check(estimator: Any, reduce: Local) -> None:
    """The arguments that this module reads, and what several ranks cannot do."""
    e = estimator
    if reduce.world > 1 and (getattr(e, "schedule", "") == "inner-exact" or e.method == "laplace"):
        what = "schedule='inner-exact'" if e.method != "laplace" else "method='laplace'"
        raise BadOption(
            f"{what} differentiates through all rows at once, and each of {reduce.world} ranks has only some: use "
            "schedule='inner-approx' or 'outer' of method='ep', or a single process."
        )
    if getattr(e, "validation_fraction", None) is not None:
        number("validation_fraction", e.validation_fraction, 0.0, 0.9)
    whole("patience", getattr(e, "patience", 1), 1)
    number("checkpoint_every", e.checkpoint_every, 0.0, strict=False)
    if e.resume and e.checkpoint is None:
        raise BadOption("resume=True needs checkpoint=, the file to continue from.")
    if not isinstance(e.callbacks, Iterable):
        raise BadOption(f"callbacks={e.callbacks!r} is no list: give a list of cavity.callbacks.Callback.")
    for callback in e.callbacks:
        if not isinstance(callback, Callback):
            raise BadOption(
                f"callbacks has {callback!r}, which is no cavity.callbacks.Callback: derive from it, or give an instance "
                "instead of the class."
            )


def stored(estimator: Any, reduce: Local) -> Path | None:
    """The file to continue from: the newest that every rank has one of."""
    return newest_checkpoint(rank_file(estimator.checkpoint, reduce), reduce) if estimator.resume else None


def seed(estimator: Any, fresh: int, reduce: Local) -> int:
    """The seed of the run, the same on every rank: that of the checkpoint, where one is continued."""
    path = stored(estimator, reduce)
    mine = fresh if path is None else int(read_facts(path)["seed"])
    return int(reduce.first(lambda: mine))


def hold_out(
    table: tables.Facts, fraction: float | None, rng: np.random.Generator
) -> tuple[tables.Facts, tables.Table | None]:
    """Rows to train on and rows to judge by, a share of each class; a class keeps at least one row to train on."""
    if fraction is None:
        return table, None
    if not isinstance(table, tables.Table):
        raise BadOption(
            f"validation_fraction={fraction:g} holds rows of a table in memory out: for a source give rows of your own, "
            "callbacks=[cavity.callbacks.Validation(X, y)]."
        )
    held = np.zeros(len(table.y), dtype=bool)
    for label in range(table.n_classes):
        rows = np.flatnonzero(table.y == label)
        held[rng.permutation(rows)[: min(round(fraction * len(rows)), len(rows) - 1)]] = True
    if not held.any():
        raise BadInput(
            f"validation_fraction={fraction:g} of {len(held)} rows leaves none to judge by: raise it, or leave it out."
        )
    parts = [tables.Table(table.X[m], table.y[m], table.weight[m], table.n_classes) for m in (~held, held)]
    return parts[0], parts[1]


def facts(estimator: Any, table: tables.Facts, n_inducing: int, seed: int) -> dict[str, Any]:
    """Which run a checkpoint belongs to: its rows and its model. How the run is trained may change on the way."""
    return {
        "rows": table.n_rows,
        "classes": table.n_classes,
        "data": digest(*table.sample()),
        "method": estimator.method,
        "n_inducing": n_inducing,
        "seed": seed,
        **{name: _told(getattr(estimator, name)) for name in MODEL if hasattr(estimator, name)},
    }


def _told(value: Any) -> Any:
    """An argument as JSON keeps it."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value).tolist()
    return sorted(value) if isinstance(value, tuple | list | set | frozenset) else repr(value)


def callbacks(
    estimator: Any, held: tables.Table | None, known: dict[str, Any], reduce: Local
) -> tuple[Callback, ...]:
    """In the order in which they are called: the user's see the validation NLL, the checkpoint is last."""
    watchers: list[Callback] = []
    if held is not None:
        watchers.append(EarlyStopping(lambda engine, state: nll(engine, state, held), estimator.patience))
    watchers += [c.bind(estimator) if isinstance(c, Validation) else c for c in estimator.callbacks]
    if estimator.checkpoint is not None:
        path = rank_file(estimator.checkpoint, reduce)
        watchers.append(Checkpoint(path, estimator.checkpoint_every, known))
    return tuple(watchers)


def go_back(run: Run) -> None:
    """To the best state so far, where rows are held out to judge by."""
    for callback in run.callbacks:
        if isinstance(callback, EarlyStopping):
            callback.end(run)


class Validation(Callback):
    """Early stopping on a set of your own: labels as in `fit`; stops after `patience` epochs without a smaller NLL."""

    def __init__(self, X: Any, y: Any, patience: int = 10) -> None:
        self.X, self.y, self.patience = X, y, patience

    def bind(self, estimator: Any) -> EarlyStopping:
        """The same, for an estimator that knows its classes."""
        if not hasattr(estimator, "classes_"):
            raise BadOption(
                f"Validation judges class labels, which a {type(estimator).__name__} has not: end its training with tol=, "
                "max_epochs= or max_seconds=."
            )
        rows = check_rows(estimator, self.X, reset=False)
        labels = check_labels(self.y, len(rows))
        unknown = np.setdiff1d(labels, estimator.classes_)
        if len(unknown):
            raise BadInput(
                f"the validation set has the label {str(unknown[0])!r}, which the training rows do not have."
            )
        encoded = np.searchsorted(estimator.classes_, labels)
        held = tables.Table(rows, encoded, np.ones(len(rows)), len(estimator.classes_))
        return EarlyStopping(lambda engine, state: nll(engine, state, held), self.patience)


def nll(engine: Engine, state: State, held: tables.Table) -> float:
    """Weighted mean negative log-probability of the held-out labels under the state as it stands."""
    log_p = log_probability(engine, state, held)
    true = log_p[np.arange(len(held.y)), held.y]
    return float(-np.average(true, weights=held.weight))


def log_probability(engine: Engine, state: State, held: tables.Table) -> Any:
    """What the state predicts of these rows, [n C]; the run is left alone."""
    model = snapshot(engine, state)
    rows = torch.tensor(held.X, device=state.theta.device)
    return fitted.log_probability(model, fitted.latent(model, rows)).numpy()


def snapshot(engine: Engine, state: State) -> fitted.Fitted:
    """The model as the state stands, on its device and in copies: the run is left alone."""
    prior, parameters, factor = copy.deepcopy((engine.prior, engine.parameters, engine.factor))
    return fitted.at(replace(engine, prior=prior, parameters=parameters, factor=factor), state)
