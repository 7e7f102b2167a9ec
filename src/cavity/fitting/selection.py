"""Model selection for method="auto": scale of the columns, kernel and likelihood, each tried against the default.

How candidates are compared depends on the table:

    up to SCREEN_ROWS rows     all rows: a candidate needs a higher evidence and a lower leave-one-out loss
    more rows                  fits to at most SCREEN_ROWS rows are compared on other rows

Changes are tried one after another, and each starts from the best candidate so far. A change is tried only where it can pay. A
candidate for all rows is trained only if its evidence is higher at the hyper-parameters of the best candidate so far; effort="best"
trains them all. [decision 37]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.config import ClassifierConfig
from cavity.config.classification_methods import Auto
from cavity.config.values import inducing_count
from cavity.errors import NotPositiveDefinite
from cavity.fitting.budget import Budget
from cavity.fitting.build import POINTS_PER_FEATURE
from cavity.fitting.learnt import Learnt
from cavity.intake.tables import Table
from cavity.kernels import Kernel, Matern32, Ranked, rank_columns
from cavity.kernels.linear import Linear
from cavity.kernels.stationary import RBF
from cavity.prediction.model import extract_model, predict_log_proba
from cavity.prediction.pool import fit_temperature, normalised
from cavity.splitting import hold_out
from cavity.training.loop import Run

Array = NDArray[np.float64]

SCREEN_ROWS = 1000
SCREEN_POINTS = 50  # inducing points of a fit that only compares
MOST_SCREENED = 30  # classes up to which fits are compared: the time of each grows with them
JUDGE_ROWS = 2000  # rows that fits are compared on
LEAST_EVIDENCE = 2.0  # nats by which the evidence must rise
LEAST_GAIN = 0.01  # share by which the loss must fall
LONG_TAIL = 2.0  # skewness from which ranks are tried
MOST_RANKED = 200  # columns up to which they are: more are pixels or the like
RANKED_ROWS = 20_000  # rows that skewness and ranks come from
NOISY = 0.2  # loss in nats from which random labels are tried
MOST_NOISY_ROWS = 10_000  # up to which they are: with more rows than that, a loss on 1,000 of them says little about the labels
MOST_CLASSES = 12  # up to which they are: its sites take a quadrature over all classes
# The same on part of a large table, unless effort="best": with six classes such a fit takes ten times as long as others.
SCREENED_CLASSES = 4
RULE_POINTS = 3  # times as many inducing points for a table of categories whose labels follow rules
RULE_ERRORS = 2.0  # standard errors by which the leave-one-out loss must then fall
TIME_SHARE = 0.25  # of the time limit that candidates may take


class Candidate(NamedTuple):
    """A model that may be selected."""

    ranked: bool = False
    matern: bool = False
    robust: bool = False
    rules: bool = False  # more points and no linear term, for labels that follow rules of categories

    @property
    def name(self) -> str:
        """The candidate in words."""
        kernel = "Matern32" if self.matern else "RBF"
        columns, labels = "ranks" if self.ranked else "values", "random labels" if self.robust else "probit"
        more = ", more points without a linear term" if self.rules else ""
        return f"{kernel} on {columns}, {labels}{more}"


class Score(NamedTuple):
    """How good a candidate is.

    Attributes
    ----------
    name : str
        The candidate.
    loss : float
        Mean negative log-probability of the true class, in nats; NaN if the candidate was dropped or could not be fitted.
    evidence : float
        Logarithm of the marginal likelihood. Of a candidate that was dropped before training: with the hyper-parameters of the best
        candidate so far, which has a higher one.
    """

    name: str
    loss: float
    evidence: float

    def __str__(self) -> str:
        evidence = f"log evidence {self.evidence:.1f}" if math.isfinite(self.evidence) else ""
        if not math.isnan(self.loss):
            return f"{self.name}: log loss {self.loss:.4f}" + (f", {evidence}" if evidence else "")
        if evidence:
            return f"{self.name}: dropped before training, {evidence} with the best hyper-parameters so far"
        return f"{self.name}: could not be fitted"


class Selection(NamedTuple):
    """Which model was selected, and how the candidates did.

    Attributes
    ----------
    selected : str
        Name of the selected candidate.
    how : str
        Rows that candidates were compared on.
    scores : tuple of Score
        The default first, then the candidates in the order in which they were tried.
    robust : bool
        Whether a share of the labels is taken to be random.
    kernel : Kernel or None
        The selected kernel as it was before training; None for the default one.
    points : int or None
        The selected number of inducing points; None for that of the default.
    """

    selected: str
    how: str
    scores: tuple[Score, ...]
    robust: bool = False
    kernel: Any = None
    points: int | None = None

    def apply(self, config: ClassifierConfig) -> ClassifierConfig:
        """Return the configuration of the selected model."""
        if self.kernel is None and not self.robust:
            return config
        learn = config.learn | {"epsilon"} if self.robust else config.learn
        points = config.n_inducing if self.points is None else self.points
        return replace(
            config, method=Auto(robust=self.robust), learn=learn, kernel=self.kernel, n_inducing=points
        )

    def __str__(self) -> str:
        return "\n".join([f"{self.selected}, by {self.how}", *(f"  {score}" for score in self.scores)])


class Trial(NamedTuple):
    """A fitted candidate."""

    candidate: Candidate
    losses: Array  # [n], negative log-probabilities of rows
    evidence: float
    fitted: Any  # what the fit left
    learnt: Learnt | None = None

    def foresee(self, run: Run) -> float | None:
        """Return the evidence of a run that has not started, at this trial's hyper-parameters, if it is lower than this trial's."""
        evidence = math.nan if self.learnt is None else self.learnt.evidence_of(run)
        return evidence if evidence < self.evidence else None

    def beats(self, other: Trial, weight: Array, by_evidence: bool) -> bool:
        """Return whether this candidate is better by more than chance and rounding."""
        gain = other.losses - self.losses
        mean = float(np.average(gain, weights=weight))
        error = np.sqrt(np.average((gain - mean) ** 2, weights=weight) / weight.sum())
        rules = self.candidate.rules and not other.candidate.rules  # their evidences are of different kernels
        least = RULE_ERRORS * error if rules else error
        enough = bool(mean > max(least, LEAST_GAIN * other.loss(weight)))
        if rules:
            return enough
        return enough and (not by_evidence or self.evidence > other.evidence + LEAST_EVIDENCE)

    def loss(self, weight: Array) -> float:
        """Return the mean loss."""
        return float(np.average(self.losses, weights=weight))

    def score(self, weight: Array) -> Score:
        """Return what `selection_` keeps of it."""
        return Score(self.candidate.name, self.loss(weight), self.evidence)


class Search(NamedTuple):
    """A search among candidates for one table."""

    budget: Budget
    table: Table  # all rows
    weight: Array  # of the rows that candidates are compared on
    by_evidence: bool
    prepare: Callable[[Candidate], Any]  # returns a Job
    judge: Callable[[Candidate, Any], Trial]  # of a trained Job
    may_add_points: bool = False
    drops: bool = False  # candidates whose evidence is lower before training
    most_classes: int = MOST_CLASSES  # with which random labels are tried

    def run(self, first: Trial) -> tuple[Trial, list[Score]]:
        """Return the best candidate, and the scores of all that were tried."""
        best, scores = first, [first.score(self.weight)]
        for change in self._changes(first):
            left = seconds_left(self.budget)
            if left is not None and left <= 0:
                break
            candidate = best.candidate._replace(**{change: True})
            try:
                job = self.prepare(candidate)
                lower = best.foresee(job.run) if self.drops and not candidate.rules else None
                if lower is not None:
                    scores.append(Score(candidate.name, math.nan, lower))
                    continue
                job.train_quietly()
                trial = self.judge(candidate, job)
            except NotPositiveDefinite:  # no reason to fail: there is a model already
                scores.append(Score(candidate.name, math.nan, math.nan))
                continue
            scores.append(trial.score(self.weight))
            if trial.beats(best, self.weight, self.by_evidence):
                best = trial
        return best, scores

    def _changes(self, first: Trial) -> Iterator[str]:
        """Yield the changes that can pay."""
        if has_long_tail(self.table):
            yield "ranked"
        if not self.by_evidence:
            yield "matern"
        suits = 2 < self.table.n_classes <= self.most_classes and self.table.n_rows <= MOST_NOISY_ROWS
        if suits and first.loss(self.weight) > NOISY:
            yield "robust"
        if self.may_add_points and first.loss(self.weight) <= NOISY and is_binary(self.table):
            yield "rules"


def seconds_left(budget: Budget) -> float | None:
    """Return the seconds that candidates still have; None without a limit."""
    limit = budget.training if budget.limit is None else budget.limit
    return None if limit is None else TIME_SHARE * limit - budget.spent()


def has_long_tail(table: Table) -> bool:
    """Return whether a column is so skewed that ranks may suit it better than values."""
    X, weight = sample_rows(table)
    if X.shape[1] > MOST_RANKED:
        return False
    share = weight / weight.sum()
    center = share @ X
    scale = np.sqrt(share @ (X - center) ** 2)
    z = (X - center) / np.where(scale > 0, scale, 1.0)
    long = np.abs(share @ z**3) > LONG_TAIL
    return bool(long.any()) and rank_columns(X[:, long], weight) is not None


def is_binary(table: Table) -> bool:
    """Return whether every feature is 0 or 1, as those of categories are."""
    return bool(((table.X == 0) | (table.X == 1)).all())


def sample_rows(table: Table) -> tuple[Array, Array]:
    """Return rows and weights for statistics of the columns: all of them, or evenly spaced ones of a large table."""
    step = max(1, math.ceil(table.n_rows / RANKED_ROWS))
    return table.X[::step], table.weight[::step]


def make_selection(
    best: Candidate, how: str, scores: list[Score], table: Table, linear: bool, points: int
) -> Selection:
    """Return the selection of a candidate; `linear`: the default kernel has a linear term; `points`: of the default."""
    kernel: Kernel | None = None
    if best.ranked or best.matern or best.rules:
        kernel = Matern32() if best.matern else RBF()
        kernel = kernel + Linear() if linear and not best.rules else kernel
        found = rank_columns(*sample_rows(table)) if best.ranked else None
        kernel = kernel if found is None else Ranked(kernel, *found)
    more = RULE_POINTS * points if best.rules else None
    return Selection(best.name, how, tuple(scores), best.robust, kernel, more)


def split_for_screening(table: Table, seed: int) -> tuple[Table, Table]:
    """Return rows to fit candidates to, and rows to compare them on; a share of each class, drawn by the seed.

    At least a third of the rows compare. Every class has a row in the first part.
    """
    rng = np.random.default_rng([seed, 7])
    judges = hold_out(table.X, table.y, 1 - min(SCREEN_ROWS / table.n_rows, 2 / 3), rng)
    kept = rng.permutation(np.flatnonzero(judges))[:JUDGE_ROWS]
    return table.select(~judges), table.select(np.sort(kept))


class ModelSearch(NamedTuple):
    """The model selection of one fit: before training on part of a large table, after training on a small one."""

    config: ClassifierConfig
    table: Table
    seed: int
    prepare: Callable[[ClassifierConfig, Table, float | None], Any]  # returns a Job that has not started
    budget: Budget

    def screen(self) -> Selection | None:
        """Compare candidates on part of a large table; None if the table is small, has many classes, or time is up."""
        left = seconds_left(self.budget)
        skipped = self.table.n_rows <= SCREEN_ROWS or self.table.n_classes > MOST_SCREENED
        if skipped or (left is not None and left <= 0):
            return None
        part, judges = split_for_screening(self.table, self.seed)
        small = replace(self.config, n_inducing=min(SCREEN_POINTS, count_points(self.config, part)))

        def prepare(candidate: Candidate) -> Any:
            return self.prepare(self._apply(candidate, small, part), part, seconds_left(self.budget))

        def judge(candidate: Candidate, job: Any) -> Trial:
            log_p = predict_log_proba(extract_model(job.run.engine, job.run.state), judges.X)[0]
            w = fit_temperature(log_p, judges.y, judges.weight)
            losses = -normalised(w * log_p)[np.arange(judges.n_rows), judges.y]
            return Trial(candidate, losses, math.nan, None)

        most = MOST_CLASSES if self.config.effort == "best" else SCREENED_CLASSES
        search = Search(self.budget, self.table, judges.weight, False, prepare, judge, most_classes=most)
        first = prepare(Candidate())
        first.train_quietly()
        best, scores = search.run(judge(Candidate(), first))
        how = f"{judges.n_rows} rows, after fits to {part.n_rows} others"
        return self._select(best.candidate, how, scores)

    def improve(self, result: Any) -> Any:
        """Return the result of the best candidate of a small table, which may be the given one."""
        loo = result.loo
        if self.table.n_rows > SCREEN_ROWS or loo is None or math.isnan(result.evidence):
            return result

        def trial(candidate: Candidate, result: Any) -> Trial:
            log_p = result.loo.log_proba(result.model)
            losses = -log_p[np.arange(len(log_p)), result.loo.y]
            evidence = -math.inf if math.isnan(result.evidence) else result.evidence
            return Trial(candidate, losses, evidence, result, result.learnt)

        def prepare(candidate: Candidate) -> Any:
            return self.prepare(
                self._apply(candidate, self.config, self.table), self.table, self.budget.left()
            )

        def judge(candidate: Candidate, job: Any) -> Trial:
            return trial(candidate, job.make_result(job.run))

        may_add_points = self.config.n_inducing is None
        drops = self.config.effort != "best"
        search = Search(self.budget, self.table, loo.weight, True, prepare, judge, may_add_points, drops)
        best, scores = search.run(trial(Candidate(), result))
        selection = self._select(best.candidate, "evidence and leave-one-out", scores)
        return best.fitted._replace(selection=selection)

    def _apply(self, candidate: Candidate, config: ClassifierConfig, table: Table) -> ClassifierConfig:
        points = count_points(config, table)
        return make_selection(candidate, "", [], self.table, has_linear(points, table), points).apply(config)

    def _select(self, candidate: Candidate, how: str, scores: list[Score]) -> Selection:
        points = count_points(self.config, self.table)
        return make_selection(candidate, how, scores, self.table, has_linear(points, self.table), points)


def has_linear(points: int, table: Table) -> bool:
    """Return whether the default kernel of a fit to this table has a linear term."""
    return bool(POINTS_PER_FEATURE * table.X.shape[1] <= points)


def count_points(config: ClassifierConfig, table: Table) -> int:
    """Return the number of inducing points of a fit to this table."""
    return inducing_count(config.inducing_points(table.n_rows, table.n_latent), table.class_totals.sum())
