"""Callbacks of scikit-learn (`set_callbacks`, 1.9 and later) follow a fit: the fit is a task, each epoch a subtask."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cavity.estimators.optional_methods import CallbackSupport
from cavity.options import Plan
from cavity.prediction.model import copy_engine
from cavity.prediction.result import Result
from cavity.rows.tables import GivenRows
from cavity.training.callbacks import Callback, Running
from cavity.training.loop import Run

Record = Callable[[Run], Result]


class Epochs(Callback):
    """Open a task when an epoch begins, close it when the epoch ends; a callback that returns True stops training."""

    every_step = False

    def __init__(self, context: Any, record: Record, told: dict[str, Any]) -> None:
        self.context, self.record, self.told = context, record, told
        self.task: Any = None

    def start(self, run: Running) -> None:
        if self.task is None:
            self.task = self.context.subcontext("epoch").call_on_fit_task_begin(**self.told)

    step = start  # the next epoch has begun

    def epoch(self, run: Running, row: dict[str, Any]) -> bool:
        self.start(run)
        task, self.task = self.task, None
        return bool(
            task.call_on_fit_task_end(**self.told, reconstruction_attributes=lambda: self._fit_so_far(run))
        )

    def end(self, run: Running) -> None:
        if self.task is not None:
            self.task.call_on_fit_task_end(**self.told)

    def _fit_so_far(self, run: Any) -> dict[str, Any]:
        """Return the fitted attributes as if training had ended here. The run stays untouched."""
        shadow, made = copy.copy(run), copy.copy(self.told["estimator"])
        shadow.engine = copy_engine(run.engine)
        made._store(self.record(shadow))
        return dict(vars(made))


@contextmanager
def tell_callbacks(
    estimator: CallbackSupport, raw: GivenRows, run: Run, plan: Plan, record: Record
) -> Iterator[None]:
    """Tell the callbacks of an estimator, if it has any, how a run goes; `record` returns what the fit leaves at a run."""
    if not getattr(estimator, "_skl_callbacks", ()):
        yield
        return
    from sklearn.callback import CallbackSupportMixin, with_callbacks

    epochs, given = (
        plan.training.max_epochs,
        {"sample_weight": raw.sample_weight, "groups": raw.groups},
    )
    told = {"estimator": estimator, "X": raw.X, "y": raw.y}
    told["metadata"] = {name: value for name, value in given.items() if value is not None} or None
    try:
        context = CallbackSupportMixin._init_callback_context(estimator, max_subtasks=epochs)
        context.call_on_fit_task_begin(**told)
        run.callbacks = (Epochs(context, record, told), *run.callbacks)
        yield
        context.call_on_fit_task_end(**told, reconstruction_attributes={})
    finally:
        with_callbacks(lambda estimator: None)(estimator)  # tears the callbacks down
