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
    kernel: str  # "RBF() + Linear()", "RBF()", or "given"
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
class CalibrationPlan(MembersPlan):
    """Which rows judge the model, and which classifiers are pooled with it."""

    how: str  # "none", "leave-one-out", "folds", "part", "eval_set"
    temperature: bool  # a temperature is fitted, also without a pool
    parts: int = 0  # of the rows
    seen: int = 0  # rows that the Gaussian process sees; 0: all of them
    refits: bool = True  # members are fitted again to all rows
    groups: int = 0  # of rows that stay together; 0: the user named none
    why: dict[str, str] = field(default_factory=dict)

    def choices(self) -> list[Choice]:
        """Return the decisions in words."""
        words = {
            "folds": f"{self.parts} folds, each trained without its rows",
            "part": f"1 of {self.parts} parts of the rows, held out of training",
            "eval_set": "rows of eval_set",
        }
        rows = Choice(
            "rows to judge by", words.get(self.how, self.how), self.why.get("how", "")
        )
        if self.groups:
            kept = [
                Choice("groups", f"{self.groups:,} groups kept together", "groups=")
            ]
        else:
            kept = []
        return [
            rows,
            *kept,
            Choice("pool", self._describe_pool(), self.why.get("pools", "")),
        ]

    def _describe_pool(self) -> str:
        if not self.linear and not self.trees:
            return "given classifiers" if self.pools else "none"
        found = ["class frequencies"]
        found += ["logistic regression", f"{self.networks} networks"] * self.linear
        found += ["boosting"] * bool(self.rate) + [f"{self.trees} extra trees"] * bool(
            self.trees
        )
        return ", ".join(found)


@dataclass(frozen=True, kw_only=True)
class Plan(Tabular):
    """What a fit does, with the reason of each decision.

    `print(clf.plan_)` shows it as a table.

    Attributes
    ----------
    training : TrainingPlan
        How the Gaussian process is trained: device, method, kernel, number of inducing
        points, optimizer, batches, epochs.
    calibration : CalibrationPlan or None
        Which rows judge it, and which classifiers are pooled with it; None for a
        regressor.
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
    >>> plan.training.n_inducing, plan.calibration.parts
    (10, 3)
    """

    training: TrainingPlan
    calibration: CalibrationPlan | None = None
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
        if self.calibration is None:
            rest = []
        else:
            rest = self.calibration.choices()
        limit = self.training.max_seconds
        if limit is not None:
            whole = "max_seconds"
            if self.time_limit is not None:
                whole = f"time_limit {self.time_limit:g} s"
            rest.append(Choice("time of training", f"at most {limit:.3g} s", whole))
        return (*self.training.choices(), *rest)

    def describe_time(self) -> str:
        """Return the estimated seconds in words: 'about 40 s; effort="fast" about 8 s';
        empty if they are unknown.
        """
        if not self.seconds:
            return ""
        fast = self.fast_seconds
        total = self.total_seconds
        about = f"about {format_seconds(total)}"
        if (
            fast is None
            or fast > 0.7 * total
            or format_seconds(fast) == format_seconds(total)
        ):
            return about
        return f'{about}; effort="fast" about {format_seconds(fast)}'

    def summarise(self) -> str:
        """Return the plan in one line, without its time."""
        t = self.training
        c = self.calibration
        rows = "all rows"
        if t.batch_size is not None:
            rows = f"{t.batch_size} rows"
        each = " per class" if t.latent > 1 else ""
        parts = [
            f"{t.method} with {t.n_inducing} inducing points{each}",
            f"{t.optimizer} on {rows} per step",
        ]
        if c is not None and c.how != "none":
            parts += [word for _, word, _ in c.choices() if word != "none"]
        return f"{', '.join(parts)} ({t.device})"

    def _columns(self) -> dict[str, Any]:
        return dict(zip(Choice._fields, zip(*self.choices, strict=True), strict=True))

    def _heading(self) -> str:
        t = self.training
        classes = ""
        if t.classes > 1:
            classes = f", {t.classes} classes"
        distinct = ""
        if t.distinct:
            distinct = f" ({t.distinct:,} distinct)"
        head = f"Plan for {t.rows:,} rows{distinct}, {t.columns} columns{classes}"
        return ": ".join(filter(None, [head, self.describe_time()]))

    def __str__(self) -> str:
        wide, value = (max(len(choice[i]) for choice in self.choices) for i in (0, 1))
        rows = (
            f"  {c.what:<{wide}}  {c.value:<{value}}  {c.why}".rstrip()
            for c in self.choices
        )
        return "\n".join([self._heading(), *rows])

    @classmethod
    def from_json(cls, value: Any) -> Self | None:
        """Return a stored plan; None if there is none, or if another version wrote it
        with other fields.
        """
        try:
            calibration = value["calibration"] and CalibrationPlan(
                **value["calibration"]
            )
            parts = {
                "training": TrainingPlan(**value["training"]),
                "calibration": calibration,
            }
            found = cls(**{**value, **parts})
            str(found)  # numbers and texts where they belong
        except (AttributeError, KeyError, TypeError, ValueError):
            return None
        return found


def format_seconds(seconds: float) -> str:
    if seconds < 1:
        return "1 s"
    if seconds < 100:
        return f"{float(f'{seconds:.1g}' if seconds < 10 else f'{seconds:.2g}'):g} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
