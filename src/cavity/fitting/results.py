"""What a fit leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from cavity.common.column_statistics import Columns
from cavity.common.types import Floats
from cavity.engine.inference.state import map_tensors
from cavity.engine.kernels import Kernel
from cavity.engine.training.loop import Run
from cavity.fitting.left_out import NOVELTY_ROWS, LeftOut, measure_novelty
from cavity.fitting.options.method import BOUND, EVIDENCE
from cavity.prediction.model import extract_model, settle_kernel
from cavity.prediction.result import Continuation as Continuation
from cavity.prediction.result import Growing as Growing
from cavity.prediction.result import Result as Result
from cavity.tables.columns.column_shares import ColumnShares, describe_columns
from cavity.tables.columns.feature_groups import fold_relevance
from cavity.tables.inducing_points import Candidates
from cavity.tables.table import Facts, Table
from cavity.tables.validation import Features

BACKGROUND = 150  # training rows that are kept for the importance of columns


def common_result(
    run: Run,
    columns: Columns,
    features: Features,
    *,
    evidence: float,
    warm_start: bool,
    candidates: Candidates | None = None,
    left_out: LeftOut | None = None,
) -> Result:
    """Return what fits of both estimators leave.

    `candidates`: training rows; `left_out`: marginals for novelty.
    """
    model = extract_model(run.engine, run.state)
    background = None
    novelty = None
    if candidates is not None:
        background = draw_rows(candidates, BACKGROUND)
        novelty = measure_novelty(model, draw_rows(candidates, NOVELTY_ROWS), left_out)
    is_bound = run.engine.removal == 0 and run.engine.factor.bounds
    settle_kernel(model.prior, model.likelihood)
    state = None
    if warm_start:
        state = map_tensors(torch.Tensor.cpu, run.state)
    return Result(
        model=model,
        features=features,
        evidence=evidence,
        is_bound=is_bound,
        evidence_name=BOUND if is_bound else EVIDENCE,
        history=run.history,
        relevance=find_relevance(model.prior.kernel, columns, features),
        continuation=None if state is None else Continuation(state, columns),
        background=background,
        novelty=novelty,
    )


def describe_rows(
    rows: Facts, features: Features, by_weight: bool = True
) -> tuple[ColumnShares, ...] | None:
    """Describe how cells of the training rows are spread; of a source, of a sample."""
    table = rows if isinstance(rows, Table) else rows.sampled
    weight = table.weight
    if not by_weight:  # weights of classes are no numbers of rows
        weight = np.ones(table.n_rows)
    return describe_columns(features.encoder.columns_, table.X, weight)


def draw_rows(rows: Candidates | Table, n: int) -> Floats:
    """Draw rows by weight."""
    share = rows.weight / rows.weight.sum()
    return rows.X[np.random.default_rng(0).choice(len(share), n, p=share)]


def find_relevance(kernel: Any, columns: Columns, features: Features) -> Floats | None:
    """Return the share of each column of X.

    Shares come from inverse lengthscales in units of the spread, averaged over classes.
    """
    weights = None
    if isinstance(kernel, Kernel):
        weights = kernel.relevance(columns)
    if weights is None:
        return None

    prepare = features.preparation
    if prepare is None:
        mean = np.asarray(weights).mean(0)
    else:
        mean = fold_relevance(weights, prepare).mean(0)

    return np.asarray(mean / mean.sum())
