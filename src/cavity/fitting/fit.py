"""What a fit of a classifier has read and decided, and who judges it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from cavity.fitting.begin import Begun
from cavity.fitting.held_out import HeldOut
from cavity.fitting.options.configuration import ClassifierConfig
from cavity.fitting.options.plan import FitPlan, JudgingPlan
from cavity.fitting.request import Request
from cavity.fitting.training_rows import TrainingRows
from cavity.fitting.verdict import Verdict
from cavity.pool.members import FittedMember, Recipe
from cavity.pool.plan import Bid
from cavity.pool.pool import Member
from cavity.tables.labelled import LabelledTable
from cavity.tables.table import Facts


class Candidates(NamedTuple):
    """The classifiers that may join the pool."""

    recipes: tuple[Recipe, ...] = ()
    members: tuple[FittedMember, ...] = ()  # fitted to the rows that train
    seconds: float = 0.0  # that their fits took
    notes: tuple[str, ...] = ()  # for the user
    quick: tuple[FittedMember, ...] = ()  # that bid for full fits
    bids: tuple[Bid, ...] = ()


class Judged(NamedTuple):
    """A trained model, and what rows say that it did not see."""

    begun: Begun
    verdict: Verdict | None = None  # None: no rows judge it
    members: tuple[Member, ...] = ()  # of the pool
    repaired: bool = False  # the model alone is worse than class frequencies
    notes: tuple[str, ...] = ()
    bids: tuple[Bid, ...] = ()  # of costly members


class ClassifierFit(NamedTuple):
    """What is known and decided before anything is trained."""

    request: Request[ClassifierConfig]
    rows: LabelledTable  # as the user gave them
    cases: Facts  # equal rows as one, unless they are different cases
    judge: Judge
    training: TrainingRows  # of the Gaussian process
    plan: FitPlan
    recipes: tuple[Recipe, ...]  # of the members of the pool


class Trained(NamedTuple):
    """A trained model, and what may join its pool."""

    fit: ClassifierFit
    begun: Begun
    candidates: Candidates = Candidates()


class Judge(Protocol):
    """Which rows train a model, which judge it, and what they say."""

    @property
    def plan(self) -> JudgingPlan:
        """How the rows were chosen."""

    @property
    def trains(self) -> Facts:
        """The cases to train on."""

    @property
    def training_share(self) -> float:
        """Share of the seconds left for the training of the Gaussian process."""

    def fit_members(self, fit: ClassifierFit) -> Candidates:
        """Fit members of the pool, before the Gaussian process is trained."""

    def hold_out(self, trained: Trained) -> tuple[HeldOut | None, Candidates]:
        """Return held-out log-probabilities; also what the rows decided of members.

        None: no rows can judge the model.
        """

    def finish(self, trained: Trained, verdict: Verdict) -> Judged:
        """Let the rows that judged train the model, where it pays."""
