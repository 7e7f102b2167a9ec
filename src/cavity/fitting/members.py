"""The members of a pool, those of the plan or classifiers of the user's own, and their fits: after training or beside it."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from cavity.fitting.networks import Networks
from cavity.fitting.sklearn_trees import (
    ExtraTrees,
    bin_without_weights,
    choose_columns,
    limit_cells,
    make_forest,
)
from cavity.options.plan import CalibrationPlan
from cavity.options.policy import (
    BOOSTING_L2,
    LEAST_BOOSTING,
    LEAST_NETWORKS,
    THREADS_ROWS,
    TRIAL_TREES,
    merge_rows,
)
from cavity.prediction.networks import Network
from cavity.prediction.pool import Member
from cavity.rows.tables import Table
from cavity.training.threads import limit_openmp

STEP = 10  # trees per core that grow between two looks at the clock


class Fitted(NamedTuple):
    """Members that are fitted, and the columns that they take."""

    models: list[Any]
    columns: NDArray[np.int64]


def make_members(ensemble: Any, plan: CalibrationPlan, seed: int) -> list[Any]:
    """Return unfitted classifiers to pool with: those of the plan, or copies of the user's own."""
    if not plan.pools:
        return []
    if not isinstance(ensemble, str):
        from sklearn.base import clone

        return [clone(member) for member in ensemble]
    from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier

    forest: Any = ExtraTrees(plan.trees, seed)
    if plan.leaves:
        forest = ExtraTreesClassifier(
            plan.trees,
            max_leaf_nodes=plan.leaves,
            bootstrap=plan.bootstrap,
            oob_score=plan.bootstrap,
            n_jobs=plan.threads,
            random_state=seed,
        )
    networks = [Networks(plan.networks, seed)] if plan.networks else []
    if not plan.rounds:
        return [forest, *networks]
    boosting = HistGradientBoostingClassifier(
        max_iter=plan.rounds, l2_regularization=BOOSTING_L2, early_stopping=False, random_state=seed
    )
    return [boosting, forest, *networks]


def make_member(model: Any, columns: NDArray[np.int64]) -> Member:
    """Return the arrays of a classifier that is fitted to these columns; raises BadOption if they are not known."""
    return model._replace(used=columns) if isinstance(model, Network) else make_forest(model, columns)


def predicts_own_rows(member: Any, table: Table) -> bool:
    """Return whether a forest predicts each of its rows by the trees that did not draw it.

    Not rows with weights: scikit-learn 1.9 draws heavy ones into nearly every tree.
    """
    return bool(getattr(member, "oob_score", False)) and table.lightest == table.heaviest


def fit_member(member: Any, table: Table, columns: NDArray[np.int64]) -> Any:
    """Fit a copy of a member to these columns of a table; up to THREADS_ROWS rows, more threads gain nothing."""
    with warnings.catch_warnings(), nullcontext() if table.n_rows > THREADS_ROWS else limit_openmp():
        warnings.simplefilter("ignore")
        return _fit(member, table, columns)


def _fit(
    member: Any, table: Table, columns: NDArray[np.int64], is_over: Callable[[], bool] | None = None
) -> Any:
    """Fit a copy of a member; `is_over`: grow a forest in steps, and return None as soon as it says so."""
    from sklearn.base import clone

    model = bin_without_weights(clone(member))
    if isinstance(model, ExtraTrees):  # the same trees in less time
        table = merge_rows(table)
    X = limit_cells(table.X)[:, columns]
    # equal weights are left out: scikit-learn is faster without
    weight = None if table.lightest == table.heaviest else table.weight
    if is_over is None or not hasattr(model, "n_estimators"):
        return model.fit(X, table.y, weight)
    trees, oob, step = model.n_estimators, model.oob_score, STEP * (model.n_jobs or 1)
    for grown in range(step, trees + step, step):  # the same trees as of one call
        if is_over():
            return None
        last = grown >= trees
        model.set_params(n_estimators=min(grown, trees), warm_start=True, oob_score=oob and last)
        model.fit(X, table.y, weight)
    return model


class FoldMembers:
    """Members of a pool during the folds of a table, by their places 1, 2, …; place 0 is the Gaussian process."""

    def __init__(self, members: Sequence[Any], table: Table) -> None:
        places = dict(enumerate(members, 1))
        self.table, self.members = table, members
        self.own = {j: m for j, m in places.items() if predicts_own_rows(m, table)}  # fitted to all rows only
        self.folded = {j: m for j, m in places.items() if j not in self.own}  # fitted without each fold
        self.forests: dict[int, Member] = {}

    def predict(self, rest: Table, X: NDArray[np.float64]) -> dict[int, NDArray[np.float64]]:
        """Fit to the rest of the rows, and return log-probabilities of the rows X."""
        columns = choose_columns(rest.X, self.members)
        for j, member in self.folded.items():
            self.forests[j] = make_member(fit_member(member, rest, columns), columns)
        return {j: self.forests[j].log_proba(X) for j in self.folded}

    def select(self, weights: NDArray[np.float64]) -> None:
        """Fit boosting or networks no more if they count little; a forest of a small table takes too little time to save it."""
        least = {ExtraTrees: 0.0, Networks: LEAST_NETWORKS}
        self.folded = {
            j: m for j, m in self.folded.items() if weights[j] >= least.get(type(m), LEAST_BOOSTING)
        }

    def make_forests(self, fitted: dict[int, Any]) -> tuple[Member, ...]:
        """Return the forests of all members, fitted to all rows; of those left out, that of the first fold."""
        columns = choose_columns(self.table.X, self.members)
        found = self.forests | {j: make_member(model, columns) for j, model in fitted.items()}
        return tuple(found[j] for j in sorted(found))


def deepen(members: Sequence[Any], table: Table, columns: NDArray[np.int64], held: Table | None) -> list[Any]:
    """Return the members, forests without a limit of their leaves if the first trees then err less on held-out rows. [decision 53]

    On tables of little noise a limit costs a third of the log loss; on others it saves most of the file and some log loss.
    """
    return [
        member.set_params(max_leaf_nodes=None)
        if held is not None and _is_better_deep(member, table, columns, held)
        else member
        for member in members
    ]


def _is_better_deep(member: Any, table: Table, columns: NDArray[np.int64], held: Table) -> bool:
    from sklearn.base import clone

    limit = getattr(member, "max_leaf_nodes", None)
    if not hasattr(member, "n_estimators") or limit is None or table.n_rows <= limit:
        return False
    X, weight = limit_cells(held.X)[:, columns], held.weight / held.weight.mean()
    few = (clone(member).set_params(n_estimators=TRIAL_TREES, max_leaf_nodes=most) for most in (limit, None))
    wrong = [float(weight @ (_fit(forest, table, columns).predict(X) != held.y)) for forest in few]
    return wrong[1] + math.sqrt(wrong[1]) < wrong[0]


class TreesBeside:
    """Fits of a pool's trees in a thread beside training: they release Python's lock, and a GPU leaves the CPU idle.

    Within the block the thread runs, and at its end it stops. scikit-learn sets the warning filters of the whole process for every
    tree, so the block restores those of its start.
    """

    def __init__(self, members: Sequence[Any], table: Table, held: Table | None) -> None:
        self.members, self.table, self.held = members, table, held
        self.columns = np.empty(0, np.int64)
        self.models: list[Any] = []
        self.error: BaseException | None = None
        self._over, self._filters = threading.Event(), warnings.catch_warnings()
        self._thread = threading.Thread(target=self._work, name="cavity-trees", daemon=True)

    def __enter__(self) -> Self:
        self._filters.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._filters.__exit__(None, None, None)

    def wait(self, seconds: float | None) -> Fitted:
        """Return the members that are fitted within the seconds, in their order."""
        self._thread.join(None if seconds is None else max(0.0, seconds))
        self._over.set()
        if self.error is not None:
            raise self.error
        return Fitted(list(self.models), self.columns)

    def _work(self) -> None:
        try:
            self.columns = choose_columns(self.table.X, self.members)
            for member in deepen(self.members, self.table, self.columns, self.held):
                found = _fit(member, self.table, self.columns, self._over.is_set)
                if found is None:
                    return
                self.models.append(found)
        except BaseException as error:
            self.error = error
