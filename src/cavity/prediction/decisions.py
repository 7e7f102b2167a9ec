"""Decisions of least expected cost. Does not load torch.

expected cost of a = Σ_c p_c cost(c, a)        decision: the a with the least
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.text_tables import format_label, list_names
from cavity.common.types import Floats, Ints
from cavity.errors import BadOption
from cavity.prediction.model import FittedModel
from cavity.prediction.predict import predict_proba

REFUSE = "refuse"  # the action of no class, in texts


class Decisions(NamedTuple):
    """The cheapest action of each row.

    Attributes
    ----------
    action : ndarray of shape (n_samples,)
        Class to decide for, of the type of `classes_`. If the costs have `refuse`, an
        array of objects, with None for rows to refuse.
    cost : ndarray of shape (n_samples,)
        Expected cost of the action.
    margin : ndarray of shape (n_samples,)
        How much more the second cheapest action is expected to cost.
    """

    action: NDArray[Any]  # [n]
    cost: Floats  # [n]
    margin: Floats  # [n]


class Choices(NamedTuple):
    """Decisions with actions as numbers: a class, or the number of classes to refuse."""

    action: Ints  # [n]
    cost: Floats  # [n]
    margin: Floats  # [n]


class Thresholds(NamedTuple):
    """Decisions about two classes, by the probability p of one of them.

    Attributes
    ----------
    label : object
        The class whose probability counts.
    low : float
        Decide for the other class if p is below.
    high : float
        Decide for the class if p is above. Between the two, refuse. If refusing is
        never cheapest, both are equal.
    """

    label: Any
    low: float
    high: float

    def describe(self) -> str:
        """Say for which probabilities what is decided."""
        text = f"{self.label} if its probability is above {self.high:.4g}"
        if self.low < self.high:
            text += f", refused from {self.low:.4g} to there"
        return text


@dataclass(frozen=True)
class Costs:
    """What decisions cost, by the true class.

    A right decision costs nothing, unless `errors` says so. Negative costs are gains.

    Parameters
    ----------
    errors : mapping of mappings or None, default=None
        `errors[true][decided]` is the cost of deciding for one class when another is
        true.
    other : float or None, default=None
        Cost of errors that `errors` does not name. If None, all must be named.
    false_positive : float or None, default=None
        With two classes: cost of deciding for `positive` when the other class is true.
    false_negative : float or None, default=None
        With two classes: cost of deciding for the other class when `positive` is true.
    positive : object, default=None
        The class that `false_positive` and `false_negative` are about.
    refuse : float or None, default=None
        Cost of refusing to decide, such as the price of an expert. If None, every row
        gets a class.

    Examples
    --------
    >>> from cavity import Costs
    >>> costs = Costs(positive="default", false_positive=1, false_negative=10)
    >>> costs.threshold(["default", "paid"]).high
    0.09090909090909091
    >>> Costs({"paid": {"default": 1}, "default": {"paid": 10}}, refuse=0.5).matrix(
    ...     ["default", "paid"]
    ... )
    array([[ 0. , 10. ,  0.5],
           [ 1. ,  0. ,  0.5]])
    """

    errors: Mapping[Any, Mapping[Any, float]] | None = None
    _: KW_ONLY
    other: float | None = None
    false_positive: float | None = None
    false_negative: float | None = None
    positive: Any = None
    refuse: float | None = None

    def __post_init__(self) -> None:
        pair = (self.false_positive, self.false_negative, self.positive)
        given = [value is not None for value in pair]
        if any(given) and not all(given):
            raise BadOption(
                "false_positive, false_negative and positive belong together: give the "
                "two costs, and the class that they are about."
            )
        if all(given) and (self.errors is not None or self.other is not None):
            raise BadOption(
                "the costs are given twice: as errors or other, and as false_positive "
                "and false_negative. Give one of them."
            )
        if not any(given) and self.errors is None and self.other is None:
            raise BadOption(
                "there are no costs of errors: give errors={true: {decided: cost}}, or "
                "for two classes positive=, false_positive= and false_negative=."
            )

        if not _is_nested(self.errors):
            raise BadOption(
                f"errors={self.errors!r:.80} must map each true class to the costs of "
                "its errors, such as {'paid': {'default': 1}, 'default': {'paid': 10}}."
            )

        for name in ("other", "false_positive", "false_negative", "refuse"):
            value = getattr(self, name)
            if value is not None:
                _check_cost(value, name)

    @property
    def refuses(self) -> bool:
        """Whether refusing is an action."""
        return self.refuse is not None

    def matrix(self, classes: Sequence[Any] | NDArray[Any]) -> Floats:
        """Return the cost of each action by true class.

        Parameters
        ----------
        classes : sequence of length C
            Class labels, such as `clf.classes_`.

        Returns
        -------
        ndarray of shape (C, C) or (C, C + 1)
            Costs: a row per true class, a column per action. The last column is that
            of refusing, if there is one.
        """
        names = [format_label(label) for label in classes]
        found = np.full((len(names), len(names)), math.nan)
        if self.other is not None:
            found[:] = self.other
        np.fill_diagonal(found, 0.0)
        for true, row in self._errors(names).items():
            for decided, cost in row.items():
                _check_cost(cost, f"the cost of {decided!r} when {true!r} is true")
                found[_find(true, names), _find(decided, names)] = cost

        _check_matrix(found, names)
        if self.refuse is None:
            return found

        return np.column_stack([found, np.full(len(names), self.refuse)])

    def threshold(self, classes: Sequence[Any] | NDArray[Any]) -> Thresholds:
        """Return the probabilities at which decisions about two classes change.

        Parameters
        ----------
        classes : sequence of length 2
            Class labels, such as `clf.classes_`.

        Returns
        -------
        Thresholds
            For the class `positive`, or the second class.
        """
        if len(classes) != 2:
            raise BadOption(
                f"thresholds are for two classes, and there are {len(classes)}: use "
                "decide()."
            )

        cost = self.matrix(classes)
        yes = 1
        if self.positive is not None:
            yes = _find(self.positive, [format_label(label) for label in classes])
        no = 1 - yes
        extra_no = float(cost[yes, no] - cost[yes, yes])
        extra_yes = float(cost[no, yes] - cost[no, no])
        middle = extra_yes / (extra_yes + extra_no)
        least = float(middle * cost[yes, no] + (1 - middle) * cost[no, no])
        if self.refuse is None or self.refuse >= least:
            return Thresholds(classes[yes], middle, middle)

        low = middle * _share_below(self.refuse, cost[no, no], least)
        high = (1 - middle) * _share_below(self.refuse, cost[yes, yes], least)
        return Thresholds(classes[yes], low, 1 - high)

    def _errors(self, names: Sequence[str]) -> Mapping[Any, Mapping[Any, float]]:
        if self.positive is None:
            return self.errors or {}

        if len(names) != 2:
            raise BadOption(
                f"false_positive and false_negative are for two classes, and there are "
                f"{len(names)}: give errors={{true: {{decided: cost}}}}."
            )

        yes = names[_find(self.positive, names)]
        no = names[1 - names.index(yes)]
        assert self.false_positive is not None
        assert self.false_negative is not None
        return {no: {yes: self.false_positive}, yes: {no: self.false_negative}}


def _is_nested(errors: Any) -> bool:
    if errors is None:
        return True

    rows = errors.values() if isinstance(errors, Mapping) else [errors]
    return all(isinstance(row, Mapping) for row in rows)


def _check_cost(value: Any, what: str) -> None:
    is_number = isinstance(value, int | float | np.number)
    if not is_number or isinstance(value, bool) or not math.isfinite(value):
        raise BadOption(f"{what} is {value!r:.40}: give a finite number.")


def _share_below(cost: float, start: float, end: float) -> float:
    """Return how far a line from start to end, above the cost, is below it."""
    if start >= cost:
        return 0.0

    return float((cost - start) / (end - start))


def _find(label: Any, names: Sequence[str]) -> int:
    """Return the number of a class."""
    name = format_label(label)
    if name not in names:
        known = list_names([repr(name) for name in names])
        raise BadOption(f"the costs name the class {name!r:.60}; classes are {known}.")

    return names.index(name)


def _check_matrix(cost: Floats, names: Sequence[str]) -> None:
    """Refuse costs that are missing, or by which an error is better than the truth."""
    unknown = np.argwhere(np.isnan(cost)).tolist()
    if unknown:
        true, decided = unknown[0]
        raise BadOption(
            f"the cost of deciding {names[decided]!r} when {names[true]!r} is true is "
            f"missing, as are {len(unknown) - 1} more: name it in errors, or give "
            "other= for all that are not named."
        )

    right = cost.diagonal()[:, None]
    odd = np.argwhere(cost < right).tolist()
    if odd:
        true, decided = odd[0]
        raise BadOption(
            f"deciding {names[decided]!r} when {names[true]!r} is true costs less than "
            "the right decision: errors[true][decided] may be swapped."
        )
    if not (cost > right).any():
        raise BadOption("no error costs more than a right decision: give a cost.")


def choose(P: Floats, cost: Floats) -> Choices:
    """Choose the cheapest action for probabilities [n C], by costs [C A].

    If actions cost the same, the first one is chosen.
    """
    expected = P @ cost
    action = expected.argmin(1)
    two = np.partition(expected, 1, axis=1)
    return Choices(action, two[:, 0], two[:, 1] - two[:, 0])


def predict_choices(model: FittedModel, X: Any, cost: Floats) -> Choices:
    """Choose the cheapest action for rows."""
    (P,) = predict_proba(model, X)
    return choose(P, cost)


def label_actions(action: Ints, classes: NDArray[Any], refuses: bool) -> NDArray[Any]:
    """Return the labels of actions; None for refusing, if it is one of them."""
    if not refuses:
        return classes[action]

    labels = np.array([*classes.tolist(), None], dtype=object)
    return labels[action]
