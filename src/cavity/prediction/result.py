"""What a fit leaves, as model files hold it. Does not load torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from cavity.common.types import Floats
from cavity.prediction.estimate import Estimate
from cavity.prediction.model import FittedModel
from cavity.prediction.novelty import Novelty
from cavity.prediction.target_estimate import TargetEstimate
from cavity.prediction.targets import TrainingRows, Units

if TYPE_CHECKING:
    from cavity.common.column_statistics import Columns
    from cavity.engine.inference import Engine, State
    from cavity.tables.validation import Features


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
    relevance: Floats | None  # [D], shares of the features
    warnings: tuple[str, ...] = ()
    classes: NDArray[Any] | None = None  # of a classifier
    growing: Growing | None = None  # what partial_fit adds to; model files have none
    units: Units = (0.0, 1.0)  # shift and scale of a regressor's targets
    rows: TrainingRows | None = None  # if predictions read the training rows
    predicts_residual: bool = True  # predictive variances have the residual
    continuation: Continuation | None = None
    loo: Any = None  # LeaveOneOut, of a classifier
    # how the temperature or the pool was found; None: there is none
    calibration: str | None = None
    class_prior: Floats | None = None  # [C], class frequencies of the training rows
    estimate: Estimate | TargetEstimate | None = None  # of the quality on new rows
    plan: Any = None  # Plan
    importance: Floats | None = None  # [columns], computed when it is first needed
    background: Floats | None = (
        None  # [n D], training rows to compute it from; model files have none
    )
    novelty: Novelty | None = None  # None after `partial_fit`
