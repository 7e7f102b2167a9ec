"""What a fit leaves."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.common.column_statistics import Columns
from cavity.fitting.leave_one_out import NOVELTY_ROWS, LeaveOneOut, measure_novelty
from cavity.inference import Engine, State
from cavity.kernels import Kernel
from cavity.kernels.inducing import Candidates
from cavity.options import Plan
from cavity.options.method import BOUND, EVIDENCE
from cavity.prediction.estimate import Estimate
from cavity.prediction.model import FittedModel, extract_model, to_device
from cavity.prediction.novelty import Novelty
from cavity.prediction.regression import TrainingRows
from cavity.prediction.regression_estimate import TargetEstimate
from cavity.rows.columns.feature_groups import fold_relevance
from cavity.rows.validation import Features
from cavity.training.loop import Run

Array = NDArray[np.float64]
BACKGROUND = 150  # training rows that are kept for the importance of columns


class Continuation(NamedTuple):
    """What `warm_start` continues from."""

    state: State
    columns: Columns


class Growing(NamedTuple):
    """A model that can take more rows."""

    engine: Engine  # with the counts and weights of all rows so far
    state: State
    columns: Columns
    lightest: float
    heaviest: float
    history: list[dict[str, Any]]


class Result(NamedTuple):
    """What a fit leaves. Model files hold the same, except the continuation."""

    model: FittedModel
    features: Features
    evidence: float
    is_bound: bool  # the evidence is a lower bound
    evidence_name: str  # what it is: see Method.name_evidence
    history: list[dict[str, Any]]
    relevance: Array | None  # [D], shares of the features
    warnings: tuple[str, ...] = ()
    classes: NDArray[Any] | None = None  # of a classifier
    growing: Growing | None = None  # what partial_fit adds to
    units: tuple[float, float] = (0.0, 1.0)  # shift and scale of a regressor's targets
    rows: TrainingRows | None = None  # if predictions read the training rows
    predicts_residual: bool = True  # predictive variances have the residual
    continuation: Continuation | None = None
    loo: LeaveOneOut | None = None  # of a classifier
    calibration: str | None = None  # how the temperature or the pool was found; None: there is none
    class_prior: Array | None = None  # [C], class frequencies of the training rows
    estimate: Estimate | TargetEstimate | None = None  # of the quality on new rows
    plan: Plan | None = None
    importance: Array | None = None  # [columns], computed when it is first needed
    background: Array | None = None  # [n D], training rows to compute it from; model files have none
    novelty: Novelty | None = None  # None after `partial_fit`


def common_result(
    run: Run,
    columns: Columns,
    features: Features,
    evidence: float,
    warm_start: bool,
    pool: Candidates | None = None,
    left_out: LeaveOneOut | None = None,
) -> Result:
    """Return what fits of both estimators leave; `pool`: training rows, `left_out`: those without their own sites, for novelty."""
    state = to_device(run.state, torch.device("cpu")) if warm_start else None
    model = extract_model(run.engine, run.state)
    is_bound = run.engine.removal == 0 and run.engine.factor.bounds
    settle_kernel(model)
    sample = draw_rows(pool, NOVELTY_ROWS)
    return Result(
        model=model,
        features=features,
        evidence=evidence,
        is_bound=is_bound,
        evidence_name=BOUND if is_bound else EVIDENCE,
        history=run.history,
        relevance=find_relevance(model.prior.kernel, columns, features),
        continuation=None if state is None else Continuation(state, columns),
        background=draw_rows(pool, BACKGROUND),
        novelty=None if sample is None else measure_novelty(model, sample, left_out),
    )


def draw_rows(pool: Candidates | None, n: int) -> Array | None:
    """Draw training rows by weight."""
    if pool is None:
        return None
    rng = np.random.default_rng(0)
    return pool.X[rng.choice(len(pool.X), n, p=pool.weight / pool.weight.sum())]


def settle_kernel(model: FittedModel) -> None:
    """Write the kernel's learnt values into its constructor arguments, one set per class."""
    kernel = model.prior.kernel
    if isinstance(kernel, Kernel):
        kernel.settle(1 if model.likelihood.linear else model.prior.n_latent)


def find_relevance(kernel: Any, columns: Columns, features: Features) -> Array | None:
    """Return the share of each column of X: inverse lengthscales in units of the spread, averaged over classes."""
    weights = kernel.relevance(columns) if isinstance(kernel, Kernel) else None
    if weights is None:
        return None
    prepare = features.preparation
    mean = np.asarray(weights).mean(0) if prepare is None else fold_relevance(weights, prepare).mean(0)
    return np.asarray(mean / mean.sum())
