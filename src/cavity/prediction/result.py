"""The result of a fit, as model files hold it. Does not load torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from cavity.common.types import Floats
from cavity.prediction.estimate import Estimate
from cavity.prediction.held_out_rows import HeldOutRows
from cavity.prediction.member_scores import MemberScores
from cavity.prediction.model import FittedModel
from cavity.prediction.novelty import Novelty
from cavity.prediction.target_estimate import TargetEstimate
from cavity.prediction.target_spread import EVEN, Spread
from cavity.prediction.targets import TrainingRows, Units
from cavity.tables.columns.column_shares import ColumnShares

if TYPE_CHECKING:
    from cavity.common.column_statistics import Columns
    from cavity.engine.batches.in_memory import RowsInMemory
    from cavity.engine.inference import Engine, State
    from cavity.engine.methods import Scheme
    from cavity.tables.labelled import LabelledTable
    from cavity.tables.validation import Features


class Continuation(NamedTuple):
    """State that `warm_start` continues from."""

    state: State
    columns: Columns


class Growing(NamedTuple):
    """A model that `partial_fit` can add rows to."""

    engine: Engine  # with the counts and weights of all rows so far
    state: State
    columns: Columns
    lightest: float
    heaviest: float
    history: list[dict[str, Any]]


class EvidenceRows(NamedTuple):
    """What log Z_q depends on beside the model."""

    rows: RowsInMemory
    scheme: Scheme
    jitter: float


class Result(NamedTuple):
    """The result of a fit.

    Model files hold all but `growing`, `continuation` and what belongs to single rows:
    `loo`, `background`, `evidence_rows`, `held_out` and `trained`.
    """

    model: FittedModel
    features: Features
    evidence: float
    is_bound: bool  # the evidence is a lower bound
    evidence_name: str  # see Method.name_evidence
    history: list[dict[str, Any]]
    relevance: Floats | None  # [D], shares of the features
    warnings: tuple[str, ...] = ()
    classes: NDArray[Any] | None = None  # None for a regressor
    growing: Growing | None = None
    units: Units = (0.0, 1.0)  # shift and scale of a regressor's targets
    rows: TrainingRows | None = None  # only if predictions read the training rows
    predicts_residual: bool = True  # predictive variances include the residual
    continuation: Continuation | None = None
    loo: Any = None  # LeaveOneOut; None for a regressor
    # which rows determined the temperature or the pool; None without both
    calibration: str | None = None
    class_prior: Floats | None = None  # [C], class frequencies of the training rows
    estimate: Estimate | TargetEstimate | None = None  # quality on new rows
    spread: Spread = EVEN  # of a regressor's residuals, from row to row
    plan: Any = None  # Plan
    importance: Floats | None = None  # [columns], computed when first needed
    background: Floats | None = None  # [n D], training rows to compute it from
    novelty: Novelty | None = None  # None after `partial_fit`
    evidence_rows: EvidenceRows | None = None  # None: not in memory, or too many
    # how cells of the training rows are spread; None after `partial_fit`
    shares: tuple[ColumnShares, ...] | None = None
    held_out: HeldOutRows | None = None
    members: MemberScores | None = None  # None if no rows judged the members
    trained: LabelledTable | None = None  # the rows of a fit in memory

    def to(self, device: Any) -> Result:
        """Return the result with its model on a device."""
        rows = self.rows
        if rows is not None:
            rows = rows.to(device)
        return self._replace(model=self.model.to(device), rows=rows)

    def without_rows(self) -> Result:
        """Return the result without values of single rows."""
        return self._replace(
            loo=None, background=None, evidence_rows=None, held_out=None, trained=None
        )
