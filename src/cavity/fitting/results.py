"""What a fit leaves."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.common.column_statistics import Columns
from cavity.fitting.leave_one_out import LeaveOneOut
from cavity.fitting.novelty import ROWS, LeftOut, measure_novelty
from cavity.fitting.partial_fit import Growing
from cavity.inference import State
from cavity.kernels import Kernel
from cavity.options import Plan
from cavity.options.method import BOUND, EVIDENCE
from cavity.prediction.estimate import Estimate
from cavity.prediction.model import FittedModel, extract_model, to_device
from cavity.prediction.novelty import Novelty
from cavity.prediction.regression import TrainingRows
from cavity.rows.columns.feature_groups import fold_relevance
from cavity.rows.tables import Start
from cavity.rows.validation import Features
from cavity.training.loop import Run

Array = NDArray[np.float64]
BACKGROUND = 150  # training rows that are kept for the importance of columns


class Continuation(NamedTuple):
    """What `warm_start` continues from."""

    state: State
    columns: Columns


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
    estimate: Estimate | None = None  # of a classifier, from rows that were held out
    plan: Plan | None = None
    importance: Array | None = None  # [columns], computed when it is first needed
    background: Array | None = (
        None  # [n D], some training rows to compute it from; model files do not have them
    )
    novelty: Novelty | None = None  # None after `partial_fit`


def common_result(
    run: Run,
    begin: Start,
    features: Features,
    evidence: float,
    warm_start: bool,
    left_out: LeftOut | None = None,
) -> Result:
    """Return what the fits of both estimators leave. `left_out`: variances at training rows, for the novelty of others."""
    state = to_device(run.state, torch.device("cpu")) if warm_start else None
    model = extract_model(run.engine, run.state)
    is_bound = run.engine.removal == 0 and run.engine.factor.bounds
    settle_kernel(model)
    sample = draw_rows(begin, ROWS)
    return Result(
        model=model,
        features=features,
        evidence=evidence,
        is_bound=is_bound,
        evidence_name=BOUND if is_bound else EVIDENCE,
        history=run.history,
        relevance=find_relevance(model.prior.kernel, begin.columns, features),
        continuation=None if state is None else Continuation(state, begin.columns),
        background=draw_rows(begin, BACKGROUND),
        novelty=None if sample is None else measure_novelty(model, sample, left_out),
    )


def draw_rows(begin: Start, n: int) -> Array | None:
    """Draw training rows by weight; None after `partial_fit`, which keeps none."""
    X, weight = begin.pool.X, begin.pool.weight
    if not len(X):
        return None
    rng = np.random.default_rng(0)
    return X[rng.choice(len(X), n, p=weight / weight.sum())]


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
