"""Judge a regressor by rows that it did not see.

Small tables have folds: models that learn again without some of the rows. Large tables
have one such model. Leave-one-out at the learnt hyper-parameters is too optimistic: they
saw the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import torch

from cavity.common.progress import announce
from cavity.common.types import Flags, Floats, Ints
from cavity.engine import runs
from cavity.errors import NotPositiveDefinite
from cavity.fitting.begin import Begun, begin_run
from cavity.fitting.left_out import LeftOut
from cavity.fitting.options.configuration import RegressorConfig
from cavity.fitting.options.plan import JudgingPlan
from cavity.fitting.options.policy.targets import count_fold_epochs
from cavity.fitting.options.policy.training import plan_training
from cavity.fitting.regression_rows import predict_new, prepare_rows
from cavity.fitting.request import Request
from cavity.prediction import targets as predictions
from cavity.prediction.latent import Marginals
from cavity.prediction.model import FittedModel, extract_model
from cavity.prediction.target_estimate import TargetEstimate, estimate_targets
from cavity.prediction.target_spread import EVEN, Spread, learn_spread
from cavity.tables.labelled import read_eval_targets
from cavity.tables.splitting import choose_folds
from cavity.tables.table import Facts, Table
from cavity.tables.validation import Features

SPREAD_PARTS = 5  # in which rows that no folds divide teach the spread


class TargetsHeldOut(NamedTuple):
    """Rows, and predictions of them by models that did not see them.

    All are in the units of the fit.
    """

    rows: Table
    mean: Floats  # [n]
    sd: Floats  # [n], with the noise
    part: Ints  # [n], rows of a part have one model
    how: str
    of: int = 0  # rows of the table; 0: these


class TargetVerdict(NamedTuple):
    """What held-out rows say of a model."""

    estimate: TargetEstimate | None = None
    spread: Spread = EVEN


def hold_out(
    request: Request[RegressorConfig],
    judging: JudgingPlan,
    given: Facts,
    features: Features,
    begun: Begun,
) -> TargetsHeldOut | None:
    """Predict held-out rows as planned; None without such rows, or without time."""
    if judging.how == "eval_set":
        return _predict_eval_set(request, given, features, begun)
    if not judging.parts or not isinstance(given, Table):
        return None

    one_class = np.zeros(given.n_rows, dtype=np.int64)
    fold = choose_folds(
        given.X, one_class, judging.parts, request.seed, group=given.kind
    )
    wanted = range(judging.folds)
    parts = [fold == i for i in wanted if (fold == i).any()]
    epochs = count_fold_epochs(begun.plan, len(begun.run.history))
    found = list(_predict_parts(request, given, features, parts, epochs))
    if not found:
        return None

    outs, predicted = zip(*found, strict=True)
    rows = np.concatenate(outs)
    mean = np.concatenate([y.mean for y in predicted])
    sd = np.sqrt(np.concatenate([y.var for y in predicted]))
    if judging.how == "folds":
        how = f"{len(found)} folds"
        of = 0
        if len(rows) < given.n_rows:
            how = f"{len(found)} of {judging.parts} folds"
            of = given.n_rows
        return TargetsHeldOut(given.select(rows), mean, sd, fold[rows], how, of)

    part = _divide(len(rows))
    of = given.n_rows
    return TargetsHeldOut(given.select(rows), mean, sd, part, "held out", of)


def _predict_parts(
    request: Request[RegressorConfig],
    given: Table,
    features: Features,
    parts: list[Flags],
    epochs: int,
) -> Iterator[tuple[Ints, Marginals]]:
    """Yield the rows of each part, and their predictions by a model without them.

    Parts that time or a Cholesky factor does not allow are left out.
    """
    clock = request.clock
    several = "s" * (len(parts) != 1)
    announce(f"  judging: {len(parts)} more fit{several}", request.verbose)
    for done, out in enumerate(parts):
        seconds = None
        if clock.limit is not None:
            seconds = clock.left() / (len(parts) - done)
        if not clock.has(0.0):
            return

        rest = given.select(~out)
        with suppress(NotPositiveDefinite):
            model = fit_without(request.for_fold(seconds), rest, features, epochs)
            held = np.flatnonzero(out)
            yield held, predict_new(request.config, model, rest, given.X[held])


def fit_without(
    request: Request[RegressorConfig], rest: Table, features: Features, epochs: int
) -> FittedModel:
    """Learn again on the rest of the rows."""
    training = prepare_rows(request, rest, features)
    M = training.Z.shape[-2]
    plan = plan_training(request.config, training.size, M, epochs)
    run = runs.train(begin_run(request, plan, training).run)
    return extract_model(run.engine, run.state)


def _predict_eval_set(
    request: Request[RegressorConfig], given: Facts, features: Features, begun: Begun
) -> TargetsHeldOut:
    held = read_eval_targets(request.raw.eval_set, features, given.units or (0.0, 1.0))
    model = extract_model(begun.run.engine, begun.run.state)
    y = predict_new(request.config, model, given, held.X)
    part = _divide(held.n_rows)
    return TargetsHeldOut(held, y.mean, np.sqrt(y.var), part, "eval_set")


def leave_out(
    loo: LeftOut, model: FittedModel, table: Table, config: RegressorConfig
) -> TargetsHeldOut | None:
    """Predict rows without their own sites.

    None if predictions do not come from q alone: from all rows, or from a committee.
    """
    if config.method.keeps_rows or config.method.committee is not None:
        return None

    (mean, var) = (part[:, 0] for part in loo.f)
    rows = table.select(loo.rows)
    if not config.method.predicts_residual:
        var = var - torch.from_numpy(predictions.residual(model, rows.X))
    sd = (var.clamp_min(0) + predictions.target_noise(model)).sqrt().numpy()
    return TargetsHeldOut(
        rows,
        mean.double().numpy(),
        sd,
        _divide(rows.n_rows),
        "leave-one-out",
        table.n_rows,
    )


def _divide(n: int) -> Ints:
    return np.random.default_rng(0).permutation(n) % SPREAD_PARTS


def weigh_residuals(held: TargetsHeldOut, units: tuple[float, float]) -> TargetVerdict:
    """Estimate the quality on new rows, and learn where residuals are larger."""
    shift, scale = units
    rows = held.rows
    ratio = np.abs(rows.y - held.mean) / np.maximum(held.sd, 1e-150)
    spread, s = learn_spread(rows.X, held.mean, ratio, rows.weight, held.part)
    estimate = estimate_targets(
        shift + scale * held.mean,
        scale * held.sd,
        shift + scale * rows.y,
        rows.weight,
        of=held.of,
        how=held.how,
        spread=s,
    )
    return TargetVerdict(estimate, spread)
