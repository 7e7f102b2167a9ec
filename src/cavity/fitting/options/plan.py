"""A plan: what a fit will do, as values that can be printed, compared and stored.

`policy` makes it, `fitting` executes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from cavity.common.tabular import Tabular
from cavity.engine.training.steps import Steps
from cavity.pool.plan import MembersPlan

if TYPE_CHECKING:  # it loads torch
    from cavity.tables.table import Facts


RBF_LINEAR = "RBF() + Linear(fades=True)"  # the default with many inducing points


class TableSize(NamedTuple):
    """The facts of a table that decisions depend on."""

    rows: int  # to train on
    columns: int
    classes: int  # 1 for regression
    latent: int  # latent functions: one per class, a single one for two classes
    total: float  # sum of the weights
    numbered: bool = True  # a row has the same number in every pass
    unmerged: int | None = None  # rows before equal ones were merged; None: none were

    @classmethod
    def of(cls, table: Facts, columns: int, numbered: bool = True) -> Self:
        total = float(table.class_totals.sum())
        place = getattr(table, "place", None)
        unmerged = None
        if not (place is None or len(place) == table.n_rows):
            unmerged = len(place)
        return cls(
            table.n_rows,
            columns,
            table.n_classes,
            table.n_latent,
            total,
            numbered,
            unmerged,
        )


class Choice(NamedTuple):
    """One decision, in words."""

    what: str
    value: str
    why: str


@dataclass(frozen=True, kw_only=True)
class TrainingPlan(Steps):
    """How one model is trained on the rows of one table."""

    rows: int
    columns: int
    classes: int
    latent: int
    device: str
    method: str
    kernel: str  # as one would type it: RBF_LINEAR, "RBF()", or the class that is given
    share_kernel: bool
    share_inducing: bool
    share_prior: bool
    n_inducing: int  # M, whitened values per latent function
    chunk: int  # rows that are in memory at once within a step
    # the number of epochs is the library's choice: training may end there
    planned: bool
    damping: float
    why: dict[str, str] = field(default_factory=dict)  # reasons by field
    distinct: int | None = None  # rows to train on, if equal ones are merged
    sample: int = 0  # rows that the Gaussian process sees; 0: all
    sites_per_row: bool = True  # method="auto" stores them, or ties them

    def choices(self) -> list[Choice]:
        """Return the decisions in words."""
        each = " per class" if self.latent > 1 else ""
        linear = ""
        if self.optimizer not in ("lbfgs", "newton"):
            linear = f", rate {self.rate:g}"
        decided = [
            ("inference", "method", self.method),
            ("device", "device", self.device),
            ("kernel", "kernel", self.kernel),
            ("inducing points", "n_inducing", f"{self.n_inducing}{each}"),
            (
                "optimizer",
                "optimizer",
                f"{self.optimizer}{linear}, damping {self.damping:g}",
            ),
            (
                "rows per step",
                "batch_size",
                "all" if self.batch_size is None else f"{self.batch_size}",
            ),
            (
                "epochs",
                "max_epochs",
                f"at most {self.max_epochs}, tolerance {self.tol:g}",
            ),
        ]
        return [
            Choice(what, value, self.why.get(name, "")) for what, name, value in decided
        ]


@dataclass(frozen=True, kw_only=True)
class JudgingPlan:
    """Which rows judge the model."""

    # "none", "leave-one-out", "folds", "part", "eval_set"; of a regressor "one fold"
    how: str
    temperature: bool  # fit a temperature, also without a pool
    parts: int = 0  # parts of the rows
    most_folds: int | None = None  # how many of the parts judge in turn; None: all
    share: float = 1.0  # of the usual work, which a fold takes
    groups: int = 0  # number of groups whose rows stay together; 0: none were named
    why: str = ""  # "given", or the rule

    @property
    def folds(self) -> int:
        """How many folds judge."""
        if self.how == "one fold":
            return 1

        return self.most_folds or self.parts

    def choices(self) -> list[Choice]:
        """Return the decisions in words."""
        folds = f"{self.folds} folds"
        if self.folds < self.parts:
            folds = f"{self.folds} of {self.parts} folds"
        if self.share < 1:
            folds += f" of {self.share:.0%} of the usual work"
        words = {
            "folds": f"{folds}, each trained without its rows",
            "part": f"1 of {self.parts} parts of the rows, held out of training",
            "one fold": f"1 of {self.parts} parts, by a model trained without it",
            "eval_set": "rows of eval_set",
        }
        found = [Choice("rows to judge by", words.get(self.how, self.how), self.why)]
        if self.groups:
            kept = f"{self.groups:,} groups kept together"
            found.append(Choice("groups", kept, "groups="))
        return found


@dataclass(frozen=True, kw_only=True)
class FitPlan(Tabular):
    """What a fit does, with the reason of each decision.

    It is made once, after the rows are read, and does not change. `print(clf.plan_)`
    shows it as a table.

    Attributes
    ----------
    training : TrainingPlan
        How the Gaussian process is trained: device, method, kernel, number of inducing
        points, optimizer, batches, epochs.
    judging : JudgingPlan or None
        Which rows judge the model.
    members : MembersPlan
        Which classifiers are pooled with the Gaussian process.
    seconds : dict
        Estimated seconds by stage ("training", "folds", "pool").
    fast_seconds : float or None
        Estimated seconds with effort="fast", if that is less.
    time_limit : float or None
        The argument of `fit`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> plan = GPClassifier(n_inducing=10, max_epochs=5, random_state=0).fit(X, y).plan_
    >>> plan.training.n_inducing, plan.judging.parts
    (10, 3)
    """

    training: TrainingPlan
    judging: JudgingPlan | None = None
    members: MembersPlan = field(default_factory=MembersPlan)
    seconds: dict[str, float] = field(default_factory=dict, compare=False)
    fast_seconds: float | None = field(default=None, compare=False)
    time_limit: float | None = None

    @property
    def total_seconds(self) -> float:
        """Estimated seconds of the whole fit."""
        total = sum(self.seconds.values())
        if self.time_limit is None:
            return total

        return min(total, self.time_limit)

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The decisions: what, value, why."""
        found = self.training.choices()
        if self.judging is not None:
            found += self.judging.choices()
        if self.judging is not None and self.training.classes > 1:
            found.append(Choice("pool", self.members.describe(), self.members.why))
            found += [Choice("bid", *bid.describe()) for bid in self.members.bids]
        if self.time_limit is not None:
            found.append(
                Choice("time", f"at most {self.time_limit:g} s", "time_limit=")
            )

        if self.training.max_seconds is not None:
            limit = f"at most {self.training.max_seconds:.3g} s"
            found.append(Choice("time of training", limit, "max_seconds"))
        return tuple(found)

    def describe_time(self) -> str:
        """Return the estimated seconds in words; empty if they are unknown.

        An example: 'about 40 s; effort="fast" about 8 s'.
        """
        if not self.seconds:
            return ""

        total = self.total_seconds
        about = f"about {format_seconds(total)}"
        fast = self.fast_seconds
        if fast is None or fast > 0.7 * total:
            return about
        if format_seconds(fast) == format_seconds(total):
            return about

        return f'{about}; effort="fast" about {format_seconds(fast)}'

    def summarise(self) -> str:
        """Return the plan in one line, without its time."""
        training = self.training
        rows = "all rows"
        if training.batch_size is not None:
            rows = f"{training.batch_size} rows"
        each = " per class" if training.latent > 1 else ""
        parts = [
            f"{training.method} with {training.n_inducing} inducing points{each}",
            f"{training.optimizer} on {rows} per step",
        ]
        if self.judging is not None and self.judging.how != "none":
            parts += [choice.value for choice in self.judging.choices()]
        if self.members.pools:
            parts.append(self.members.describe())
        return f"{', '.join(parts)} ({training.device})"

    def _columns(self) -> dict[str, Any]:
        return dict(zip(Choice._fields, zip(*self.choices, strict=True), strict=True))

    def _heading(self) -> str:
        training = self.training
        head = f"Plan for {training.rows:,} rows"
        if training.distinct:
            head += f" ({training.distinct:,} distinct)"
        head += f", {training.columns} columns"
        if training.classes > 1:
            head += f", {training.classes} classes"
        return ": ".join(filter(None, [head, self.describe_time()]))

    def __str__(self) -> str:
        wide = max(len(choice.what) for choice in self.choices)
        value = max(len(choice.value) for choice in self.choices)
        rows = (
            f"  {choice.what:<{wide}}  {choice.value:<{value}}  {choice.why}".rstrip()
            for choice in self.choices
        )
        return "\n".join([self._heading(), *rows])

    @classmethod
    def from_json(cls, value: Any) -> Self | None:
        """Return a stored plan; None if there is none, or if its fields are unknown."""
        try:
            parts = _split_calibration(value) if "calibration" in value else dict(value)
            parts["training"] = TrainingPlan(**parts["training"])
            if parts["judging"] is not None:
                parts["judging"] = JudgingPlan(**parts["judging"])
            parts["members"] = MembersPlan.from_json(parts["members"])
            found = cls(**parts)
            str(found)  # numbers and texts where they belong
        except (AttributeError, KeyError, TypeError, ValueError):
            return None

        return found


def _split_calibration(value: dict[str, Any]) -> dict[str, Any]:
    """Return the plan of a model file of version 0.4 in today's fields."""
    parts: dict[str, Any] = {"judging": None, "members": {}} | value
    found = parts.pop("calibration")
    if found is None:
        return parts

    found = dict(found)
    why = found["why"]
    seen = found.pop("seen", 0)
    parts["training"] = parts["training"] | {"sample": seen}
    judging = {"how", "temperature", "parts", "groups"}
    parts["judging"] = {k: found[k] for k in judging & set(found)}
    parts["judging"]["why"] = why.get("how", "")
    members = set(found) - judging - {"why"}
    parts["members"] = {k: found[k] for k in members} | {"why": why.get("pools", "")}
    return parts


def format_seconds(seconds: float) -> str:
    if seconds < 1:
        return "1 s"
    if seconds < 100:
        return f"{float(f'{seconds:.1g}' if seconds < 10 else f'{seconds:.2g}'):g} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"

    return f"{seconds / 3600:.1f} h"
