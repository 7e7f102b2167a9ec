"""Leave-one-out judges a classifier: removing a row's own sites, where no row is held out."""

from __future__ import annotations

from dataclasses import dataclass

from cavity.fitting.begin import Begun
from cavity.fitting.fit import Candidates, ClassifierFit, Judged
from cavity.fitting.held_out import HeldOut, RowsOf, hold_left_out
from cavity.fitting.left_out import LeftOut, find_leave_one_out
from cavity.fitting.options import policy
from cavity.fitting.options.plan import JudgingPlan
from cavity.fitting.verdict import Verdict
from cavity.prediction.model import extract_model
from cavity.tables.table import Facts, Table

TRAINING = 0.35  # share of the seconds that are left


@dataclass(frozen=True)
class LeaveOneOut:
    """No row is held out: removing a row's own sites judges the model."""

    plan: JudgingPlan
    trains: Facts

    training_share = TRAINING

    def fit_members(self, fit: ClassifierFit) -> Candidates:
        """Return none: leave-one-out cannot weigh other classifiers."""
        return Candidates()

    def hold_out(
        self, fit: ClassifierFit, begun: Begun, candidates: Candidates
    ) -> tuple[HeldOut | None, Candidates]:
        """Return leave-one-out log-probabilities of the rows that the run has seen.

        None if no temperature was asked for, or if groups cannot be kept together.
        """
        if not policy.calibrates(fit.request.config):
            return None, candidates

        left_out = leave_out(fit, begun)
        if left_out is None:
            return None, candidates

        known = left_out.without_lone_rows()
        if not len(known.y) or (fit.rows.table.n_groups and known.unit is None):
            return None, candidates

        model = extract_model(begun.run.engine, begun.run.state)
        scored = choose_scored(fit, begun)
        of: RowsOf = "cases"
        if scored is fit.rows.table:
            of = "given"
        found = hold_left_out(left_out, model, scored.n_rows, of)
        return found._replace(seconds=(begun.seconds,)), candidates

    def finish(
        self,
        fit: ClassifierFit,
        begun: Begun,
        verdict: Verdict,
        candidates: Candidates,
    ) -> Judged:
        """Return the model as it is."""
        return Judged(begun, verdict, notes=candidates.notes)


def leave_out(fit: ClassifierFit, begun: Begun) -> LeftOut | None:
    """Return the marginals of the rows that the run has seen, without their own labels."""
    training = begun.rows
    whole = training.seen is fit.cases and fit.rows.drawn_from is None
    table = choose_scored(fit, begun)
    merged = training.table
    if (
        table is fit.rows.table
        and isinstance(fit.cases, Table)
        and fit.cases.place is not None
    ):
        merged = fit.cases  # equal rows were merged before the split

    return find_leave_one_out(begun.run, table, merged, whole)


def choose_scored(fit: ClassifierFit, begun: Begun) -> Facts:
    """Return the table that leave-one-out scores: the user's, or the part that is seen."""
    seen = begun.rows.seen
    if seen is not fit.cases and isinstance(seen, Table):  # a part, or a sample
        return seen

    return fit.rows.table
